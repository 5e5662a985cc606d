package block

import (
	"context"
	"fmt"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/operation/process"
)

func CheckFilesystemFrozen(h operation.Host) operation.Builtin {
	patient := operation.NewPatience()
	return operation.Bounded(operation.Builtin{
		Name: "check-filesystem-frozen",
		Doc: "Checks whether tasks wait to write to a frozen filesystem. Verdict FilesystemFrozen. The kernel does not expose which filesystems are " +
			"frozen, so a frozen filesystem without writers is not detected.",
		Effect:     operation.Check,
		Parameters: blockedParameters(),
		Results: append([]operation.Result{
			{Name: "mountPoint", Doc: "its mount point; missing: the tasks' system calls name no file"},
			{Name: "device", Doc: "its block device"},
			{Name: "deviceNumber", Doc: "its MAJ:MIN"},
			{Name: "fsType", Doc: "its type"},
		}, blockedByResults()...),
		Run: func(ctx context.Context, call *operation.Call) (operation.Output, error) {
			f := operation.NewFinding()
			tasks, others, err := runBlockedBy(h, ctx, patient, call, hostfs.WaitFrozenFilesystem, f)
			if err != nil {
				return operation.Output{}, err
			}
			if len(tasks) == 0 {
				return operation.Output{}, operation.RefutedBy("NoFilesystemFrozen", "no task waits for a thaw; %s", others)
			}
			reportBlockedBy(f, tasks)
			what := "a filesystem (the tasks' system calls do not show which)"
			for _, t := range tasks {
				if m := t.file; m != nil {
					f.Text("mountPoint", m.mountPoint)
					f.Text("device", m.device)
					f.Text("deviceNumber", m.number)
					f.Text("fsType", m.fsType)
					what = fmt.Sprintf("%s on %s at %s", m.fsType, m.source, m.mountPoint)
					break
				}
			}
			return f.Output(operation.VerdictOf("FilesystemFrozen", "%s is frozen: %s to write", what, waitingVerb(tasks))), nil
		},
	})
}

// waitingVerb returns "pg[811] in pod … has waited for 12s", with the number of further tasks.
func waitingVerb(tasks []*blockedTask) string {
	t := tasks[0]
	s := process.TaskName(t.comm, t.pid) + t.owner.In()
	if n := len(tasks) - 1; n > 0 {
		return fmt.Sprintf("%s and %s have waited%s", s, display.Count(n, "more task"), t.since())
	}
	return s + " has waited" + t.since()
}
