package block

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/diagnose/operation"
)

func CheckNFSHang(h operation.Host) operation.Builtin {
	return operation.Bounded(operation.Builtin{
		Name: "check-nfs-hang",
		Doc: "Checks whether an NFS server does not answer. Verdict NFSServerSilent: tasks are blocked in the NFS client, or requests are sent, and no " +
			"answer comes during window, according to /proc/1/mountstats.",
		Effect: operation.Check,
		Parameters: append(blockedParameters(),
			operation.Parameter{Name: "window", Doc: "how long to watch for answers", Kind: operation.Duration, Default: "2s", Max: int64(time.Minute)}),
		Results: append([]operation.Result{
			{Name: "source", Doc: "server:/export; several if it is ambiguous"},
			{Name: "mountPoint", Doc: "mount point"},
			{Name: "fsType", Doc: "nfs or nfs4"},
			{Name: "sent", Doc: "requests sent during window"},
			{Name: "timeouts", Doc: "requests that timed out since the mount"},
		}, blockedByResults()...),
		Run: host{h, operation.NewPatience()}.checkNFSHang,
	})
}

func (h host) checkNFSHang(ctx context.Context, call *operation.Call) (operation.Output, error) {
	f := operation.NewFinding()
	before, unread := h.FS.NFSMounts()
	if unread == nil && len(before) == 0 {
		return operation.Output{}, operation.RefutedBy("NoNFSMount", "this node has no NFS mount")
	}
	if err := operation.Pause(ctx, call.Parameters.Duration("window")); err != nil {
		return operation.Output{}, err
	}
	after, err := h.FS.NFSMounts()
	if unread = cmp.Or(unread, err); unread != nil {
		f.Note("can't read the counters of NFS mounts: %v", unread)
		before, after = nil, nil
	}
	// Read the tasks after the window: tasks that are blocked then got no answer within it.
	tasks, others, err := h.runBlockedBy(ctx, call, hostfs.WaitNFS, f)
	if err != nil {
		return operation.Output{}, err
	}
	reportBlockedBy(f, tasks)
	window := call.Parameters.Duration("window").String()
	silent, answering := silentNFS(before, after)
	uncounted := slices.IndexFunc(after, func(m hostfs.NFSMount) bool { return !m.Counted })
	if len(tasks) == 0 && unread != nil {
		return operation.Output{}, fmt.Errorf("no task waits for NFS, but the counters of its mounts can't be read: %w", unread)
	}
	if len(tasks) == 0 {
		// Requests are sent and nothing is received, though no task is blocked: soft mounts or
		// asynchronous I/O.
		asked := slices.DeleteFunc(silent, func(m nfsChange) bool { return m.sent == 0 })
		if len(asked) == 0 && uncounted >= 0 {
			return operation.Output{}, fmt.Errorf("no task waits for NFS, but the kernel has no counters of %s", after[uncounted].Source)
		}
		if len(asked) == 0 {
			return operation.Output{}, operation.RefutedBy("NFSServersAnswer", "no request went unanswered for %s, and no task waits for NFS; %s", window, others)
		}
		reportNfs(f, asked)
		return f.Output(operation.VerdictOf("NFSServerSilent", "%s: %s sent in %s, no answer", nfsNames(asked), display.Count(int(asked[0].sent), "request"), window)), nil
	}
	named := "" // the export that the tasks' system calls name, that of the longest blocked first
	for _, t := range slices.Backward(tasks) {
		if t.file != nil && strings.HasPrefix(t.file.fsType, "nfs") {
			named = t.file.source
		}
	}
	if named != "" {
		if slices.ContainsFunc(answering, func(m nfsChange) bool { return m.Source == named }) {
			return operation.Output{}, operation.RefutedBy("NFSServersAnswer", "%s answers, though %s", named, waitingVerb(tasks))
		}
		silent = slices.DeleteFunc(silent, func(m nfsChange) bool { return m.Source != named })
	} else if len(before) > 0 && len(silent) == 0 && uncounted < 0 {
		return operation.Output{}, operation.RefutedBy("NFSServersAnswer", "all NFS servers answer, though %s", waitingVerb(tasks))
	}
	reportNfs(f, silent)
	if named == "" {
		named = cmp.Or(nfsNames(silent), "an NFS server (the tasks' system calls do not show which)")
	} else {
		f.Text("source", named)
	}
	return f.Output(operation.VerdictOf("NFSServerSilent", "%s does not answer: %s", named, waitingVerb(tasks))), nil
}

// nfsChange is a mount with the number of requests sent during the window.
type nfsChange struct {
	hostfs.NFSMount
	sent uint64
}

// silentNFS separates mounts that received nothing during the window from those that did. It skips
// mounts without counters.
func silentNFS(before, after []hostfs.NFSMount) (silent, answering []nfsChange) {
	for _, m := range after {
		i := slices.IndexFunc(before, func(b hostfs.NFSMount) bool { return b.Path == m.Path && b.Source == m.Source })
		if i < 0 || !m.Counted || !before[i].Counted {
			continue
		}
		c := nfsChange{NFSMount: m, sent: m.Sends - min(m.Sends, before[i].Sends)}
		// Mounts of one server share a connection and its counters.
		if m.Receives != before[i].Receives {
			answering = append(answering, c)
		} else {
			silent = append(silent, c)
		}
	}
	slices.SortStableFunc(silent, func(a, b nfsChange) int { return int(min(b.sent, 1<<30)) - int(min(a.sent, 1<<30)) })
	return silent, answering
}

// nfsNames joins exports: "filer:/a, filer:/b or 3 more".
func nfsNames(mounts []nfsChange) string {
	var names []string
	for _, m := range mounts {
		names = operation.AddOnce(names, m.Source)
	}
	const most = 3
	if len(names) > most {
		return fmt.Sprintf("%s or %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, " or ")
}

func reportNfs(f *operation.Finding, mounts []nfsChange) {
	if len(mounts) == 0 {
		return
	}
	m := mounts[0]
	f.Text("source", nfsNames(mounts))
	f.Text("mountPoint", m.Path)
	f.Text("fsType", m.FSType)
	f.Uint("sent", m.sent)
	f.Uint("timeouts", m.Timeouts)
}
