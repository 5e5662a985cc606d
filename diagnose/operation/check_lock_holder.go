package operation

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kernosis/kernosis/collector/hostfs"
)

// CheckLockHolder returns the built-in check-lock-holder.
func CheckLockHolder(h Host) Builtin {
	patient := newPatience()
	return bounded(Builtin{
		Name: "check-lock-holder",
		Doc: "Succeeds if a blocked task still waits for a kernel lock whose holder is known, with verdict LockHeld, which names the " +
			"holder, whose it is, and what it does itself. Refuted where no holder is known: kernels record one from 6.16 on, of mutexes, semaphores and rwsems.",
		Effect: Check,
		Parameters: append(pidParameters(false, "task that waits; none: only the holder is looked at"),
			Parameter{Name: "holderPID", Doc: "task that the kernel has recorded as the lock's holder", Kind: Integer, Max: 1 << 22}),
		Results: []Result{
			{"holderPID", "the holder"},
			{"holderTGID", "its process"},
			{"holderComm", "its name"},
			{"holderState", "its state: R runs, D blocked itself, S sleeps"},
			{"holderStackTop", "the kernel function it sleeps in"},
			{"holderWaitsFor", "what it waits for itself, as blocked-stacks has it"},
			{"holderOwner", "pod and container, systemd unit or cgroup it belongs to"},
			{"holderPodUID", "UID of its pod"},
			{"holderContainerID", "runtime's id of its container"},
			{"holderCgroup", "its cgroup"},
			noteResult(),
		},
		Run: func(ctx context.Context, call *Call) (Output, error) { return h.checkLockHolder(ctx, patient, call) },
	})
}

func (h Host) checkLockHolder(ctx context.Context, patient patience, call *Call) (Output, error) {
	f := newFinding()
	v := call.Parameters
	if v["holderPID"] == "" {
		return Output{}, refutedBy("NoKnownLockHolder", "no holder of a lock was given: the task waits for none that the kernel records")
	}
	pid := int(v.Int("holderPID"))
	waits, waiter, err := h.lockWaiter(ctx, patient, v, f)
	if err != nil {
		return Output{}, err
	}
	stat, err := h.FS.Stat(pid)
	switch {
	case goneTask(err):
		return Output{}, refutedBy("LockHolderGone", "the holder, process %d, has ended", pid)
	case err != nil:
		return Output{}, fmt.Errorf("look at the holder %d: %w", pid, err)
	case waiter != nil && waiter.known && stat.StartTime > hostfs.BootTime()-waiter.blockedFor:
		return Output{}, refutedBy("LockHolderGone", "the holder %d has ended: %s was started with its number after the wait began",
			pid, taskName(stat.Comm, pid))
	}
	holder := h.blockedTask(stat, newLastRan(h.FS))
	h.explain(ctx, patient, holder, f)
	f.holder(holder)
	if err := f.artifact(call, "holder.txt", func(w *page) {
		holder.write(w)
		if waiter != nil {
			waiter.write(w)
		}
	}); err != nil {
		return Output{}, err
	}
	return f.output(verdictOf("LockHeld", "%s held by %s%s, %s", waits, taskName(holder.comm, pid), holder.owner.in(), holder.doing())), nil
}

// lockWaiter looks at the task that waits, where one is given, and says what it
// waits for.
func (h Host) lockWaiter(ctx context.Context, patient patience, v Values, f *finding) (waits string, t *blockedTask, err error) {
	if v["pid"] == "" {
		return "a kernel lock is", nil, nil
	}
	stat, err := h.task(v)
	switch {
	case errors.Is(err, errTaskGone):
		return "", nil, refutedBy("TaskNotBlocked", "%v", err)
	case err != nil:
		return "", nil, err
	}
	t = h.blockedTask(stat, newLastRan(h.FS))
	name := taskName(stat.Comm, int(stat.PID))
	if stat.State != 'D' {
		return "", nil, refutedBy("TaskNotBlocked", "%s is in state %c by now", name, stat.State)
	}
	h.explain(ctx, patient, t, f)
	t.heldBy(int(v.Int("holderPID")))
	if t.cause.kind != waitsForLock {
		return "", nil, refutedBy("NoKnownLockHolder", "%s waits for %s: %s", name, t.cause.kind, t.cause.String())
	}
	return fmt.Sprintf("%s%s waits in %s for a lock", name, t.owner.in(), stackTop(t.stack)), t, nil
}

// doing says what a task is about.
func (t *blockedTask) doing() string {
	since := ""
	if t.known && t.blockedFor >= time.Second {
		since = " for " + t.blockedFor.Truncate(time.Second).String()
	}
	switch {
	case t.state == 'R':
		return "which runs"
	case t.state == 'T' || t.state == 't':
		return "which is stopped"
	case len(t.stack) == 0:
		return fmt.Sprintf("which is in state %c%s", t.state, since)
	case t.cause.kind == waitsForUnknown:
		return fmt.Sprintf("which is in state %c%s in %s", t.state, since, stackTop(t.stack))
	}
	return fmt.Sprintf("which is in state %c%s in %s and waits for %s", t.state, since, stackTop(t.stack), t.cause.kind)
}

// holder sets the results about the task that holds a lock.
func (f *finding) holder(t *blockedTask) {
	f.int("holderPID", int64(t.pid))
	if t.tgid != 0 {
		f.int("holderTGID", int64(t.tgid))
	}
	f.text("holderComm", t.comm)
	f.text("holderState", string(t.state))
	f.text("holderStackTop", stackTop(t.stack))
	f.text("holderWaitsFor", t.cause.kind)
	f.text("holderOwner", t.owner.String())
	f.text("holderPodUID", t.owner.container.PodUID)
	f.text("holderContainerID", t.owner.container.ID)
	f.text("holderCgroup", t.owner.cgroup)
}
