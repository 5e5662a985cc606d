package disk

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/diagnose/operation"
)

func checkedFilesystemResults() []operation.Result {
	results := []operation.Result{{Name: "filesystems", Doc: "number of such filesystems; the results below describe the first"}}
	for _, r := range filesystemResults() {
		if r.Name != "mountPoint" {
			results = append(results, r)
		}
	}
	return append(append(results, UserResults()...), operation.NoteResult())
}

// checkFilesystem runs a check with the verdict yes for filesystems for which says returns a text.
// If there are none, it is refuted with the reason no.
func checkFilesystem(h operation.Host, ctx context.Context, patient operation.Patience, call *operation.Call, yes, no string, says func(*filesystem) string) (operation.Output, error) {
	list, err := filesystems(h, call.Parameters, false)
	if errors.Is(err, errNotMounted) {
		return operation.Output{}, operation.RefutedBy(no, "%v", err)
	}
	if err != nil {
		return operation.Output{}, err
	}
	if ctx.Err() != nil {
		return operation.Output{}, context.Cause(ctx)
	}
	if len(list) == 1 && !list[0].remembers() && yes == filesystemErrors {
		return operation.Output{}, fmt.Errorf("%s: this filesystem type records no errors", list[0])
	}
	f := operation.NewFinding()
	var found []*filesystem
	var text []string
	for _, fs := range list {
		err := seeStopped(h, ctx, patient, fs)
		s := says(fs)
		if err != nil {
			if len(list) == 1 && s == "" || ctx.Err() != nil {
				return operation.Output{}, err
			}
			f.Note("%v", err)
		}
		if s != "" {
			found = append(found, fs)
			text = append(text, s)
		}
	}
	if len(found) == 0 {
		evidence := display.Count(len(list), "filesystem") + " examined"
		if len(list) == 1 {
			evidence = list[0].evidence()
		}
		return operation.Output{}, operation.RefutedBy(no, "%s", evidence)
	}
	first := found[0]
	reportFilesystem(f, first, nil)
	f.Int("filesystems", int64(len(found)))
	users := diskUsers{}
	if first.device != "" {
		table, err := h.FS.MountTable()
		if err != nil {
			f.Note("can't determine the mounts on it: %v", err)
		}
		users = UsersOf(h, table, first.device)
	}
	users.mounts = operation.AddOnce(users.mounts, first.shownPath())
	ReportUsers(f, &users)
	const most = 3
	if len(text) > most {
		text = append(text[:most], fmt.Sprintf("and %d more", len(text)-most))
	}
	return f.Output(operation.VerdictOf(yes, "%s%s", strings.Join(text, "; "), podsOf(&users))), nil
}

// filesystemErrors is the verdict of check-filesystem-errors.
const filesystemErrors = "FilesystemErrors"

// remembers reports whether the filesystem is of a kind that records errors.
func (f *filesystem) remembers() bool { return f.ext4 != nil || f.btrfs != nil }

// evidence describes why a filesystem is fine.
func (f *filesystem) evidence() string {
	text := f.String() + " is not marked as read-only"
	if f.readOnly() {
		text = f.String() + " is mounted read-only"
	}
	switch {
	case !f.remembers():
		return text + "; this filesystem type records no errors"
	case f.errors() == 0:
		return text + " and has no recorded errors"
	}
	return text + "; " + f.errorText()
}

// podsOf returns "; 3 pods" for the users of a device whose mount point the message already has.
func podsOf(u *diskUsers) string {
	pods := *u
	pods.mounts = nil
	return pods.String()
}
