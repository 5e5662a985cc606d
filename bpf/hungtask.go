package bpf

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"structs"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// StemHungTask: a task has been in uninterruptible sleep for too long.
const StemHungTask = "hungtask"

func hungtask() Stem {
	return Stem{
		Name:   StemHungTask,
		object: _HungtaskBytes,
		spec:   LoadHungtask,
		configure: func(spec *ebpf.CollectionSpec, k *Kernel) error {
			hz, err := kernelHZ()
			if err != nil {
				return err
			}
			return errors.Join(
				spec.Variables[HungtaskVarHz].Set(hz),
				spec.Variables[HungtaskVarPfFrozen].Set(frozenFlag(k)),
			)
		},
		hooks: []hook{
			// Absent without CONFIG_DETECT_HUNG_TASK: the walk finds the same hangs.
			{name: "hang", optional: true, variants: []variant{
				{program: HungtaskProgHangBtf, attach: tracing()},
				{program: HungtaskProgHangRaw, attach: rawTracepoint("sched_process_hang")},
			}},
		},
		unattached: []string{HungtaskProgPollTasks},
		shares:     true,
	}
}

// kernelHZ returns CONFIG_HZ, derived from the resolution of a clock because the kernel's
// configuration often can't be read. The resolution of the coarse clocks is exactly one tick
// (KTIME_LOW_RES is TICK_NSEC) on every architecture.
func kernelHZ() (uint64, error) {
	var res unix.Timespec
	if err := unix.ClockGetres(unix.CLOCK_MONOTONIC_COARSE, &res); err != nil {
		return 0, fmt.Errorf("length of a tick: %w", err)
	}
	tick := res.Nano()
	// All architectures offer values between 24 and 1200.
	if tick < int64(time.Second)/10_000 || tick > int64(time.Second)/10 {
		return 0, fmt.Errorf("length of a tick: %d ns is not plausible", tick)
	}
	return uint64((int64(time.Second) + tick/2) / tick), nil
}

// frozenFlag returns PF_FROZEN where it marks frozen tasks, else 0. Since v6.1 (f5d39b020809, which
// added the function looked up here) frozen tasks have a state of their own, and v6.15 reused the
// bit for PF_KCOMPACTD. Macros are not in BTF.
func frozenFlag(k *Kernel) uint32 {
	const pfFrozen = 0x00010000
	var fn *btf.Func
	if k.typeByName("__set_task_frozen", &fn) == nil {
		return 0
	}
	return pfFrozen
}

// Detectors of a hung task (enum kn_hung_detector).
const (
	HungByKhungtaskd = 1
	HungByPoll       = 2
)

// Locks that a hung task waits for (enum kn_hung_lock).
const (
	LockNone       = 0
	LockMutex      = 1
	LockSemaphore  = 2
	LockRWSemRead  = 3
	LockRWSemWrite = 4
)

// HungTask is struct kn_hungtask.
type HungTask struct {
	_          structs.HostLayout
	H          Header
	Task       Task
	Holder     Task   // PID 0: not known
	LockAddr   uint64 // 0: no recorded lock
	BlockedNS  uint64
	Called     uint64 // function called by the innermost frame; 0: not known
	Detector   uint8
	Lock       uint8
	HolderHint uint8
	InIOWait   uint8
	StackDepth uint32
	Stack      [32]uint64
	Memory     Chain
	Default    Chain
}

// HungTaskResumed is struct kn_hungtask_resumed.
type HungTaskResumed struct {
	_         structs.HostLayout
	H         Header
	Task      Task
	BlockedNS uint64
	Detector  uint8
	Exited    uint8
	Pad       [6]uint8
	Memory    Chain
	Default   Chain
}

// HungTaskSleep is struct kn_hungtask_sleep: one uninterruptible sleep that the BPF side keeps.
// SinceNS and SeenNS are CLOCK_MONOTONIC.
type HungTaskSleep struct {
	_          structs.HostLayout
	Task       Task
	Switches   uint64
	Wait       uint64
	SinceNS    uint64
	SeenNS     uint64
	Generation uint32
	Reported   uint8 // 0, or the detector that reported it
	Woken      uint8
	Run        uint16
}

// BlockedFor returns how long the task was known to be asleep, a lower bound.
func (s *HungTaskSleep) BlockedFor() time.Duration {
	if s.SeenNS < s.SinceNS {
		return 0
	}
	return time.Duration(s.SeenNS - s.SinceNS)
}

type hungTaskSettings struct {
	_               structs.HostLayout
	ThresholdNS     uint64
	HangThresholdNS uint64
	WakeNS          uint64
	Generation      uint32
	FullGeneration  uint32
	Run             uint16
	Pad             [3]uint16
}

// ErrChildPIDNamespace: this process is not in the initial pid namespace, and sees only some tasks.
var ErrChildPIDNamespace = errors.New("not in the initial pid namespace (hostPID)")

// TaskWalk runs the stem's poll_tasks program over all tasks. It is for one goroutine, while its
// [Loaded] is open.
type TaskWalk struct {
	program  *ebpf.Program
	blocked  *ebpf.Map
	settings *ebpf.Map
	settled  func() // [Loaded.Settled]
	current  hungTaskSettings

	sleeps map[uint32]HungTaskSleep // by thread, as of the last Sweep
}

// NewTaskWalk prepares walks for the hungtask stem. The error wraps
// [ErrChildPIDNamespace] where a walk would not see all tasks.
func NewTaskWalk(l *Loaded) (*TaskWalk, error) {
	if err := inInitialPIDNamespace(); err != nil {
		return nil, fmt.Errorf("walk tasks: %w", err)
	}
	w := &TaskWalk{
		program:  l.programs[HungtaskProgPollTasks],
		blocked:  l.maps[HungtaskMapBlocked],
		settings: l.maps[HungtaskMapSettings],
		settled:  l.Settled,
	}
	// Settings of an earlier run: the generation continues from there.
	if err := w.settings.Lookup(uint32(0), &w.current); err != nil {
		return nil, fmt.Errorf("walk tasks: read settings: %w", err)
	}
	// A new agent does not know which of the reported hangs still last. So the next walks report
	// these again, as many at once as fit into the ring.
	w.current.Run++
	return w, nil
}

// The initial pid namespace has this inode number on every kernel since 3.8 (PROC_PID_INIT_INO).
const initialPIDNamespace = 0xEFFFFFFC

func inInitialPIDNamespace() error {
	var st unix.Stat_t
	if err := unix.Stat("/proc/self/ns/pid", &st); err != nil {
		return fmt.Errorf("pid namespace: %w", err)
	}
	if st.Ino != initialPIDNamespace {
		return ErrChildPIDNamespace
	}
	return nil
}

// HungTimes are the durations from which a sleep is a hang.
type HungTimes struct {
	Walk       time.Duration // for a task that the walk finds
	Khungtaskd time.Duration // for one that khungtaskd finds; 0: khungtaskd's own timeout
	// Wake is how often the kernel wakes a task that waits for direct I/O or a flush, only to wait
	// on: half of hung_task_timeout_secs. 0: the kernel does not wake them.
	Wake time.Duration
}

// Run visits every task once. It writes three kinds of tasks to the stem's ring: tasks asleep for
// times.Walk or longer, reported tasks that run again, and tasks that an earlier agent reported and
// that still hang. Tasks that do not fit into the ring are written by the next Run.
func (w *TaskWalk) Run(times HungTimes) error {
	w.current.ThresholdNS = uint64(times.Walk)
	w.current.HangThresholdNS = uint64(times.Khungtaskd)
	w.current.WakeNS = uint64(times.Wake)
	w.current.Generation++
	if err := w.settings.Put(uint32(0), &w.current); err != nil {
		return fmt.Errorf("walk tasks: write settings: %w", err)
	}
	// Attached for one walk only: an iterator's link keeps no state between two walks.
	walk, err := link.AttachIter(link.IterOptions{Program: w.program})
	if err != nil {
		return fmt.Errorf("walk tasks: %w", err)
	}
	defer walk.Close()
	seq, err := walk.Open()
	if err != nil {
		return fmt.Errorf("walk tasks: %w", err)
	}
	defer seq.Close()
	var none [64]byte // the program prints nothing: the first read reaches the end
	for {
		if _, err := seq.Read(none[:]); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil && !errors.Is(err, unix.EAGAIN) {
			return fmt.Errorf("walk tasks: %w", err)
		}
	}
}

// Asleep summarizes the sleeps that remain after a walk.
type Asleep struct {
	Reported int           // tasks that are reported and still hang
	Longest  time.Duration // the longest sleep that is not reported; 0: none
}

// Sweep deletes the sleeps of tasks that the last Run did not visit, because these tasks have
// exited. It calls exited for each one that was reported, and then [Loaded.Settled].
func (w *TaskWalk) Sweep(exited func(*HungTaskSleep)) (left Asleep, err error) {
	// Entries that khungtaskd adds meanwhile can abort the iteration; the next walk reads again.
	if w.sleeps, err = contents[uint32, HungTaskSleep](w.blocked); err != nil && !errors.Is(err, ebpf.ErrIterationAborted) {
		return left, fmt.Errorf("read sleeping tasks: %w", err)
	}
	var gone []uint32
	reported := false
	for tid, s := range w.sleeps {
		switch {
		case s.Generation != w.current.Generation:
			if s.Reported != 0 {
				exited(&s)
				reported = true
			}
			gone = append(gone, tid)
		case s.Reported != 0:
			left.Reported++
		default:
			left.Longest = max(left.Longest, s.BlockedFor())
		}
	}
	if reported {
		// Before deleting: if the agent is killed in between, exits are reported twice, not never.
		w.settled()
	}
	for _, tid := range gone {
		if err := w.blocked.Delete(&tid); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return left, fmt.Errorf("forget task %d: %w", tid, err)
		}
	}
	return left, nil
}

// Hung returns the hangs that last, as of the last Sweep: reported, or with a record in the ring.
func (w *TaskWalk) Hung() iter.Seq[*HungTaskSleep] {
	return func(yield func(*HungTaskSleep) bool) {
		for _, s := range w.sleeps {
			if s.Reported != 0 && s.Generation == w.current.Generation && !yield(&s) {
				return
			}
		}
	}
}
