package disk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/diagnose/operation"
)

func checkedFilesystemResults() []operation.Result {
	one := filesystemResults()
	one = slices.DeleteFunc(one, func(r operation.Result) bool { return r.Name == "mountPoint" })
	all := []operation.Result{{Name: "filesystems", Doc: "number of such filesystems; the results below describe the first"}}
	return slices.Concat(all, one, UserResults(), []operation.Result{operation.NoteResult()})
}

// checkFilesystem runs a check. Its verdict is yes if says returns a text for any filesystem.
// Otherwise it is refuted with the reason no, unless a filesystem could not be examined.
func (h host) checkFilesystem(ctx context.Context, call *operation.Call, yes, no string, says func(*filesystem) string) (operation.Output, error) {
	list, err := h.filesystems(call.Parameters, false)
	if errors.Is(err, errNotMounted) {
		return operation.Output{}, operation.RefutedBy(no, "%v", err)
	}
	if err != nil {
		return operation.Output{}, err
	}
	if len(list) == 1 && !list[0].remembers() && yes == filesystemErrors {
		return operation.Output{}, fmt.Errorf("%s: this filesystem type records no errors", list[0])
	}
	f := operation.NewFinding()
	var found []*filesystem
	var text []string
	var unseen error
	for _, fs := range list {
		err := h.seeStopped(ctx, fs)
		s := says(fs)
		if err != nil {
			if ctx.Err() != nil {
				return operation.Output{}, err
			}
			unseen = cmp.Or(unseen, err)
			f.Note("%v", err)
		}
		if s != "" {
			found = append(found, fs)
			text = append(text, s)
		}
	}
	if len(found) == 0 && unseen != nil {
		return operation.Output{}, unseen
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
		users = UsersOf(h.Host, table, first.device)
	}
	users.mounts = operation.AddOnce(users.mounts, first.shownPath())
	ReportUsers(f, &users)
	users.mounts = nil // the message has the mount point
	const most = 3
	if len(text) > most {
		text = append(text[:most], fmt.Sprintf("and %d more", len(text)-most))
	}
	return f.Output(operation.VerdictOf(yes, "%s%s", strings.Join(text, "; "), users.String())), nil
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

func CheckFilesystemErrors(h operation.Host) operation.Builtin {
	in := host{h, operation.NewPatience()}
	return operation.Bounded(operation.Builtin{
		Name: "check-filesystem-errors",
		Doc: "Checks whether a filesystem has recorded errors. Verdict FilesystemErrors. ext4 and btrfs keep errors across mounts until they are checked " +
			"or reset; other filesystems record none.",
		Effect: operation.Check,
		Parameters: append(filesystemParameters("any on a disk"),
			operation.Parameter{Name: "maxAge", Doc: "ignore ext4 filesystems whose last error is older; 0s: all count", Kind: operation.Duration, Default: "0s"}),
		Results: checkedFilesystemResults(),
		Run: func(ctx context.Context, call *operation.Call) (operation.Output, error) {
			maxAge := call.Parameters.Duration("maxAge")
			return in.checkFilesystem(ctx, call, filesystemErrors, "NoFilesystemErrors", func(f *filesystem) string {
				if f.errors() == 0 || maxAge > 0 && f.ext4 != nil && time.Since(f.ext4.Last.Time) > maxAge {
					return ""
				}
				return fmt.Sprintf("%s: %s", f, f.errorText())
			})
		},
	})
}

func CheckFilesystemReadonly(h operation.Host) operation.Builtin {
	in := host{h, operation.NewPatience()}
	return operation.Bounded(operation.Builtin{
		Name: "check-filesystem-readonly",
		Doc: "Checks whether a filesystem that should be writable refuses writes. Verdict FilesystemReadOnly: it stopped after an error (emergency-ro, " +
			"shutdown, or its error policy, which some kernels do not expose), is read-only with recorded errors, or its device is read-only. A " +
			"read-only filesystem without such a sign counts as mounted read-only on purpose.",
		Effect:     operation.Check,
		Parameters: filesystemParameters("any on a disk"),
		Results:    checkedFilesystemResults(),
		Run: func(ctx context.Context, call *operation.Call) (operation.Output, error) {
			return in.checkFilesystem(ctx, call, "FilesystemReadOnly", "NoFilesystemReadOnly", func(f *filesystem) string {
				if f.refusing == "" {
					return ""
				}
				text := fmt.Sprintf("%s refuses writes (%s)", f, f.refusing)
				if s := f.errorText(); s != "" {
					text += ": " + s
				}
				return text
			})
		},
	})
}
