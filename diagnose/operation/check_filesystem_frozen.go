package operation

import (
	"context"
	"fmt"

	"github.com/kernosis/kernosis/collector/display"
)

// CheckFilesystemFrozen returns the built-in check-filesystem-frozen.
func CheckFilesystemFrozen(h Host) Builtin {
	patient := newPatience()
	return bounded(Builtin{
		Name: "check-filesystem-frozen",
		Doc: "Succeeds if tasks wait to write to a frozen filesystem, with verdict FilesystemFrozen. " +
			"The kernel does not show which filesystems are frozen, so one that nobody writes to is not seen.",
		Effect:     Check,
		Parameters: blockedParameters(),
		Results: append([]Result{
			{"mountPoint", "where it is mounted; missing: the tasks' system calls name no file"},
			{"device", "its block device"},
			{"deviceNumber", "its MAJ:MIN"},
			{"fsType", "its type"},
		}, blockedByResults()...),
		Run: func(ctx context.Context, call *Call) (Output, error) {
			f := newFinding()
			tasks, others, err := h.blockedBy(ctx, patient, call, waitsForThaw, f)
			if err != nil {
				return Output{}, err
			}
			if len(tasks) == 0 {
				return Output{}, refutedBy("NoFilesystemFrozen", "no task waits for a thaw; %s", others)
			}
			f.blockedBy(tasks)
			what := "a filesystem (the tasks' system calls do not show which)"
			for _, t := range tasks {
				if m := t.file; m != nil {
					f.text("mountPoint", m.mountPoint)
					f.text("device", m.device)
					f.text("deviceNumber", m.number)
					f.text("fsType", m.fsType)
					what = fmt.Sprintf("%s on %s at %s", m.fsType, m.source, m.mountPoint)
					break
				}
			}
			return f.output(verdictOf("FilesystemFrozen", "%s is frozen: %s to write", what, waitingVerb(tasks))), nil
		},
	})
}

// waitingVerb is "pg[811] in pod … has waited for 12s", with how many more.
func waitingVerb(tasks []*blockedTask) string {
	t := tasks[0]
	s := taskName(t.comm, t.pid) + t.owner.in()
	if n := len(tasks) - 1; n > 0 {
		return fmt.Sprintf("%s and %s have waited%s", s, display.Count(n, "more task"), t.since())
	}
	return s + " has waited" + t.since()
}
