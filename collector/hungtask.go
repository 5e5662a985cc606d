package collector

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kernosis/kernosis/bpf"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
)

const (
	// hungLookEvery is the interval of walks over all tasks: for 10,000 it costs 0.1 % of a CPU.
	hungLookEvery = 5 * time.Second
	// hungLookSoon is the interval while a task hangs, to detect the end soon, and for thresholds
	// so short that 5 s would miss hangs.
	hungLookSoon = time.Second
	// hungLookAtOnce is the shortest wait for a walk when a sleep reaches the threshold.
	hungLookAtOnce = 100 * time.Millisecond
	// hungLookAgain is the pause after a failed walk.
	hungLookAgain = 30 * time.Second
	// maxHungFailed is how many walks may fail in a row: a lack of memory may be momentary.
	maxHungFailed = 2
	// hungDefaultAfter is the kernel's default timeout, used if khungtaskd is switched off.
	hungDefaultAfter = 120 * time.Second
	// maxHungReported bounds the hangs kept until they end, to as many as the BPF side keeps.
	maxHungReported = 4096
)

// hungtask decodes hung tasks, and walks all tasks to find them.
type hungtask struct {
	env *environment
	attribution
	names
	walk   taskWalk // nil if this process can't see all tasks
	failed int      // walks in a row
	err    error    // of the latest walk

	// reported are the hangs whose end is not reported yet. They are kept because the BPF program
	// can't find the cgroups of a task that has exited.
	reported map[hungKey]reportedHang
	asked    requests

	// The event points to these; they are reused for the next event.
	task, holder event.Task
	data         event.HungTaskData
}

// taskWalk is what hungtask uses of [bpf.TaskWalk].
type taskWalk interface {
	Run(times bpf.HungTimes) error
	Sweep(exited func(*bpf.HungTaskSleep)) (left bpf.Asleep, err error)
	Hung() iter.Seq[*bpf.HungTaskSleep]
}

// reportedHang is the event of a hang's beginning. seen: an earlier agent has handled it, so this one
// ignores it.
type reportedHang struct {
	*event.Event
	seen bool
}

type hungKey struct {
	pid   uint32
	start uint64
}

// newHungTask returns the hungtask stem's decoder. It fails if neither detector works here.
func newHungTask(env *environment, l *bpf.Loaded) (*hungtask, error) {
	h := makeHungTask(env)
	walk, err := bpf.NewTaskWalk(l)
	switch {
	case err == nil:
		h.walk = walk
	case !errors.Is(err, bpf.ErrChildPIDNamespace), !hangAttached(l):
		return nil, err
	default:
		env.log.Warn("hung tasks are reported only when khungtaskd finds them; their end is not detected", "error", err)
	}
	return h, nil
}

func makeHungTask(env *environment) *hungtask {
	return &hungtask{env: env, attribution: attribution{attributor: env.attributor}, reported: map[hungKey]reportedHang{}}
}

func hangAttached(l *bpf.Loaded) bool {
	return slices.ContainsFunc(l.Reports(), func(r bpf.VariantReport) bool {
		return r.State == bpf.Attached || r.State == bpf.Adopted
	})
}

func (h *hungtask) decode(head *bpf.Header, raw []byte, ev *event.Event) (bool, error) {
	if head.Kind == bpf.KindHungTaskResumed {
		r, err := bpf.View[bpf.HungTaskResumed](raw)
		if err != nil {
			return false, err
		}
		h.resumed(r, ev)
		return true, nil
	}
	r, err := bpf.View[bpf.HungTask](raw)
	if err != nil {
		return false, err
	}
	if h.repeats(r) {
		return false, nil
	}
	h.hung(r, ev)
	return true, nil
}

// repeats reports whether the hang of a record is already reported. An agent's first walk reports all
// hangs again, including hangs that khungtaskd found before that walk and whose first record this
// agent has already read from the ring. If the agent ignored that record, only the walk confirms the
// hang.
func (h *hungtask) repeats(r *bpf.HungTask) bool {
	was, ok := h.reported[hungKey{r.Task.PID, r.Task.StartNS}]
	return ok && !was.seen && r.H.BootNS-r.BlockedNS <= uint64(was.BootTime) //nolint:gosec // nanoseconds since boot
}

// hung fills the event of a hang. It allocates the names of the stack and a copy for reported,
// which is fine since hangs are minutes apart.
func (h *hungtask) hung(r *bpf.HungTask, ev *event.Event) {
	ev.Kind = event.HungTask
	h.names.task(&h.task, &r.Task)
	ev.Task = &h.task
	h.subject(ev, &r.Memory, &r.Default)

	h.data = event.HungTaskData{
		BlockedFor: event.Duration(r.BlockedNS),
		Lock:       lockName(r.Lock),
		LockAddr:   r.LockAddr,
		Stack:      h.stack(r),
		Detector:   detectorName(r.Detector),
	}
	if r.Holder.PID != 0 && h.holds(r) {
		h.names.task(&h.holder, &r.Holder)
		h.data.Holder, h.data.HolderHint = &h.holder, r.HolderHint != 0
	}
	h.data.Wait = waitOf(h.data.Lock != "", r.InIOWait != 0, h.data.Stack)
	ev.HungTask = &h.data

	seen := h.env.cfg.Seen != nil && h.env.cfg.Seen(ev)
	put(h.reported, maxHungReported, hungKey{r.Task.PID, r.Task.StartNS}, reportedHang{ev.Clone(), seen})
}

// holds reports whether the record's holder may hold the lock. For a semaphore, and for a lock that
// readers hold, the kernel only remembers the last owner. That task may have exited, and its memory
// may belong to another task by now. So holds requires that a task with this PID and start time exists
// and started before the wait.
func (h *hungtask) holds(r *bpf.HungTask) bool {
	if r.HolderHint == 0 {
		return true
	}
	const tick = 10 * time.Millisecond // of /proc
	stat, err := h.env.fs.Stat(int(r.Holder.PID))
	started := time.Duration(r.Holder.StartNS)                      //nolint:gosec // nanoseconds since boot
	waits := time.Duration(r.H.BootNS) - time.Duration(r.BlockedNS) //nolint:gosec // likewise
	return err == nil && started.Truncate(tick) == stat.StartTime && started <= waits
}

// stack returns the names of the frames. The kernel omits the scheduler's functions, including
// mutex_lock and io_schedule. stack takes the first of these from the call, without an offset.
func (h *hungtask) stack(r *bpf.HungTask) []string {
	stack := h.env.symbols.Stack(r.Stack[:min(int(r.StackDepth), len(r.Stack))])
	if called, off, ok := h.env.symbols.Lookup(r.Called); ok && off == 0 {
		stack = slices.Insert(stack, 0, called)
	}
	return stack
}

func (h *hungtask) resumed(r *bpf.HungTaskResumed, ev *event.Event) {
	h.ended(&r.Task, ev, time.Duration(r.BlockedNS), r.Detector, r.Exited != 0)
	if ev.Cgroup == nil { // the hang was reported by an earlier run
		h.subject(ev, &r.Memory, &r.Default)
	}
}

// ended fills the event of a hang's end with the subject from its beginning.
func (h *hungtask) ended(t *bpf.Task, ev *event.Event, blocked time.Duration, detector uint8, exited bool) {
	ev.Kind = event.HungTaskResumed
	h.names.task(&h.task, t)
	ev.Task = &h.task
	key := hungKey{t.PID, t.StartNS}
	reported, ok := h.reported[key]
	delete(h.reported, key)
	h.data = event.HungTaskData{BlockedFor: event.Duration(blocked), Wait: waitOther, Detector: detectorName(detector), Exited: exited}
	if ok {
		ev.Cgroup, ev.Container, ev.Unit = reported.Cgroup, reported.Container, reported.Unit
		h.data.Wait, h.data.Lock, h.data.LockAddr = reported.HungTask.Wait, reported.HungTask.Lock, reported.HungTask.LockAddr
	}
	ev.HungTask = &h.data
}

// poll walks all tasks. Its findings arrive through the ring, except for the ends of exited tasks.
func (h *hungtask) poll(_ context.Context, _ time.Time, emit func(*event.Event)) (time.Duration, error) {
	if h.walk == nil {
		h.asked.take() // whether a hang lasts is unknown
		return time.Hour, nil
	}
	times := hungTimes(h.env.cfg.HungTaskAfter, h.env.fs)
	var left bpf.Asleep
	if h.err = h.walk.Run(times); h.err == nil {
		left, h.err = h.walk.Sweep(func(s *bpf.HungTaskSleep) {
			ev := hostfs.Stamped(event.Event{Source: "bpf/" + bpf.StemHungTask})
			h.ended(&s.Task, ev, s.BlockedFor(), s.Reported, true)
			emit(ev)
		})
	}
	if h.err != nil {
		h.failed++
		return hungLookAgain, h.err
	}
	h.failed = 0
	h.reportLasting()
	return nextHungLook(times.Walk, left), nil
}

// blind returns the error of the walks if several failed in a row. What khungtaskd finds meanwhile is
// reported, but it finds not all hangs, and not their ends.
func (h *hungtask) blind() error {
	if h.failed <= maxHungFailed {
		return nil
	}
	return h.err
}

// reportLasting reports the hangs that still last to each request.
func (h *hungtask) reportLasting() {
	for _, emit := range h.asked.take() {
		for s := range h.walk.Hung() {
			if reported, ok := h.reported[hungKey{s.Task.PID, s.Task.StartNS}]; ok { // else its record is in the ring
				ev := hostfs.Stamped(*reported.Clone())
				ev.HungTask.BlockedFor = event.Duration(s.BlockedFor())
				emit(ev)
			}
		}
	}
}

// hungTimes returns the times after which a sleep is a hang: the configured time or, if that is 0,
// the kernel's hung_task_timeout_secs.
func hungTimes(configured time.Duration, fs hostfs.FS) bpf.HungTimes {
	kernel := kernelHungTime(fs)
	times := bpf.HungTimes{Walk: configured, Khungtaskd: configured, Wake: kernel / 2}
	switch {
	case configured > 0:
	case kernel > 0:
		times.Walk = kernel
	default:
		times.Walk = hungDefaultAfter
	}
	return times
}

// kernelHungTime returns hung_task_timeout_secs, or 0 if khungtaskd is off.
func kernelHungTime(fs hostfs.FS) time.Duration {
	// Read at each walk: it may change. The file does not exist without khungtaskd.
	v, err := fs.Sysctl("kernel.hung_task_timeout_secs")
	if err != nil {
		return 0
	}
	// The kernel accepts up to LONG_MAX/HZ; more than a year means never.
	n, err := strconv.ParseUint(v, 10, 64)
	if err != nil || n > 365*24*3600 {
		return 0
	}
	return time.Duration(n) * time.Second
}

// nextHungLook returns the time to the next walk: sooner while a task hangs, and at the moment at
// which the longest sleep becomes a hang.
func nextHungLook(after time.Duration, left bpf.Asleep) time.Duration {
	next := hungLookEvery
	if left.Reported > 0 || after <= 2*hungLookEvery {
		next = hungLookSoon
	}
	if due := after - left.Longest; left.Longest > 0 && due > 0 {
		next = min(next, max(due, hungLookAtOnce))
	}
	return next
}

func lockName(lock uint8) string {
	return map[uint8]string{
		bpf.LockMutex: "mutex", bpf.LockSemaphore: "semaphore",
		bpf.LockRWSemRead: "rwsem-read", bpf.LockRWSemWrite: "rwsem-write",
	}[lock]
}

func detectorName(d uint8) string {
	if d == bpf.HungByKhungtaskd {
		return "khungtaskd"
	}
	return "poll"
}

// What a hung task waits for (event.HungTaskData.Wait).
const (
	waitIO   = "io"
	waitLock = "lock"
	// waitCommand is a single device command that may take hours without a fault: discard, erase,
	// write zeroes, or a command from user space (SG_IO).
	waitCommand = "command"
	// waitProcess is another process or thread: the child of a vfork, or the other threads of a
	// process that calls exec. Any user can make a task wait like this for any time. A signal ends the
	// wait.
	waitProcess = "process"
	waitOther   = "other"
)

// waitOf returns what a task waits for. A lock that the kernel recorded is certain, even if its holder
// waits for a device; in_iowait is as certain. Otherwise the stack decides.
func waitOf(recordedLock, inIOWait bool, frames []string) string {
	switch {
	case recordedLock:
		return waitLock
	case inIOWait && slices.ContainsFunc(frames, isCommand):
		return waitCommand
	case inIOWait:
		return waitIO
	case isForProcess(frames):
		return waitProcess
	}
	switch hostfs.WaitCauseOf(frames).Kind {
	case hostfs.WaitLock, hostfs.WaitFrozenFilesystem: // the lock that a freeze holds
		return waitLock
	case hostfs.WaitDisk, hostfs.WaitJournal, hostfs.WaitNFS, hostfs.WaitFUSE, hostfs.WaitNetworkFilesystem:
		return waitIO
	default:
		return waitOther
	}
}

// isCommand reports whether a frame is of a function that sends such a command and waits.
func isCommand(frame string) bool {
	function := hostfs.FrameFunction(frame)
	return slices.ContainsFunc([]string{
		"blk_execute_rq", "blkdev_issue_discard", "blkdev_issue_secure_erase",
		"blkdev_issue_zeroout", "blkdev_issue_write_zeroes",
	}, func(prefix string) bool { return strings.HasPrefix(function, prefix) })
}

// isForProcess reports whether the stack shows vfork or exec waiting for another task. Compilers
// inline the first function of each pair.
func isForProcess(frames []string) bool {
	for _, frame := range frames {
		function := hostfs.FrameFunction(frame)
		if strings.HasPrefix(function, "schedule") || strings.HasPrefix(function, "wait_for_completion") {
			continue // how it waits
		}
		return slices.Contains([]string{"wait_for_vfork_done", "kernel_clone", "de_thread", "begin_new_exec"}, function)
	}
	return false
}
