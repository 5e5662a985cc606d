package block

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/operation/process"
)

func CheckLockHolder(h operation.Host) operation.Builtin {
	return operation.Bounded(operation.Builtin{
		Name: "check-lock-holder",
		Doc: "Checks whether a blocked task waits for a kernel lock with a known holder. Verdict LockHeld, which names the holder, its owner and what it " +
			"does. Refuted if no holder is known: kernels record holders of mutexes and semaphores since 6.16, of rwsems since 6.17.",
		Effect: operation.Check,
		Parameters: append(process.PIDParameters(false, "waiting task; none: only the holder is inspected"),
			operation.Parameter{Name: "holderPID", Doc: "lock holder recorded by the kernel", Kind: operation.Integer, Max: 1 << 22}),
		Results: []operation.Result{
			{Name: "holderPID", Doc: "the holder"},
			{Name: "holderTGID", Doc: "its process"},
			{Name: "holderComm", Doc: "its name"},
			{Name: "holderState", Doc: "its state: R running, D blocked itself, S sleeping"},
			{Name: "holderStackTop", Doc: "kernel function it sleeps in"},
			{Name: "holderWaitsFor", Doc: "what the holder itself waits for, as in blocked-stacks"},
			{Name: "holderOwner", Doc: "its pod and container, systemd unit or cgroup"},
			{Name: "holderPodUID", Doc: "UID of its pod"},
			{Name: "holderContainerID", Doc: "runtime's ID of its container"},
			{Name: "holderCgroup", Doc: "its cgroup"},
			operation.NoteResult(),
		},
		Run: host{h, operation.NewPatience()}.checkLockHolder,
	})
}

func (h host) checkLockHolder(ctx context.Context, call *operation.Call) (operation.Output, error) {
	f := operation.NewFinding()
	v := call.Parameters
	if v["holderPID"] == "" {
		return operation.Output{}, operation.RefutedBy("NoKnownLockHolder", "no lock holder was given: the task waits for no lock whose holder the kernel records")
	}
	pid := int(v.Int("holderPID"))
	waits, waiter, err := h.lockWaiter(ctx, v, f)
	if err != nil {
		return operation.Output{}, err
	}
	stat, err := h.FS.Stat(pid)
	switch {
	case process.IsGone(err):
		return operation.Output{}, operation.RefutedBy("LockHolderGone", "the holder, process %d, has ended", pid)
	case err != nil:
		return operation.Output{}, fmt.Errorf("examine the holder %d: %w", pid, err)
	case waiter != nil && waiter.known && stat.StartTime > hostfs.BootTime()-waiter.blockedFor:
		return operation.Output{}, operation.RefutedBy("LockHolderGone", "the holder %d has ended: %s reused its PID after the wait began",
			pid, process.TaskName(stat.Comm, pid))
	}
	holder := h.lookAtBlockedTask(stat, newLastRan(h.FS))
	h.explain(ctx, holder, f)
	reportHolder(f, holder)
	if err := f.Artifact(call, "holder.txt", func(w *operation.Page) {
		holder.write(w)
		if waiter != nil {
			waiter.write(w)
		}
	}); err != nil {
		return operation.Output{}, err
	}
	return f.Output(operation.VerdictOf("LockHeld", "%s held by %s%s, %s", waits, process.TaskName(holder.comm, pid), holder.owner.In(), holder.doing())), nil
}

// lockWaiter inspects the waiting task, if one is given, and describes what it waits for.
func (h host) lockWaiter(ctx context.Context, v operation.Values, f *operation.Finding) (waits string, t *blockedTask, err error) {
	if v["pid"] == "" {
		return "a kernel lock is", nil, nil
	}
	stat, err := process.Task(h.Host, v)
	switch {
	case errors.Is(err, process.ErrTaskGone):
		return "", nil, operation.RefutedBy("TaskNotBlocked", "%v", err)
	case err != nil:
		return "", nil, err
	}
	t = h.lookAtBlockedTask(stat, newLastRan(h.FS))
	name := process.TaskName(stat.Comm, int(stat.PID))
	if stat.State != 'D' {
		return "", nil, operation.RefutedBy("TaskNotBlocked", "%s is now in state %c", name, stat.State)
	}
	h.explain(ctx, t, f)
	t.heldBy(int(v.Int("holderPID")))
	if t.cause.Kind != hostfs.WaitLock {
		return "", nil, operation.RefutedBy("NoKnownLockHolder", "%s waits for %s: %s", name, t.cause.Kind, t.cause.String())
	}
	return fmt.Sprintf("%s%s waits in %s for a lock", name, t.owner.In(), hostfs.TopFrame(t.stack)), t, nil
}

// doing describes what a task is doing.
func (t *blockedTask) doing() string {
	since := ""
	if t.known && t.blockedFor >= time.Second {
		since = " for " + t.blockedFor.Truncate(time.Second).String()
	}
	switch {
	case t.state == 'R':
		return "which is running"
	case t.state == 'T' || t.state == 't':
		return "which is stopped"
	case len(t.stack) == 0:
		return fmt.Sprintf("which is in state %c%s", t.state, since)
	case t.cause.Kind == hostfs.WaitUnknown:
		return fmt.Sprintf("which is in state %c%s in %s", t.state, since, hostfs.TopFrame(t.stack))
	}
	return fmt.Sprintf("which is in state %c%s in %s and waits for %s", t.state, since, hostfs.TopFrame(t.stack), t.cause.Kind)
}

// reportHolder sets the results about the lock holder.
func reportHolder(f *operation.Finding, t *blockedTask) {
	f.Int("holderPID", int64(t.pid))
	if t.tgid != 0 {
		f.Int("holderTGID", int64(t.tgid))
	}
	f.Text("holderComm", t.comm)
	f.Text("holderState", string(t.state))
	f.Text("holderStackTop", hostfs.TopFrame(t.stack))
	f.Text("holderWaitsFor", t.cause.Kind)
	f.Text("holderOwner", t.owner.String())
	f.Text("holderPodUID", t.owner.Container.PodUID)
	f.Text("holderContainerID", t.owner.Container.ID)
	f.Text("holderCgroup", t.owner.Cgroup)
}
