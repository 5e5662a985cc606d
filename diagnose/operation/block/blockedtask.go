package block

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/operation/disk"
	"github.com/kernosis/kernosis/diagnose/operation/process"
)

// host is the node. Looks that may hang in the kernel are made with patience.
type host struct {
	operation.Host
	patient operation.Patience
}

// blockedTask is a sleeping task, and what is known about its reason.
type blockedTask struct {
	pid, tgid  int // tgid 0: unknown
	comm       string
	state      byte
	startTime  time.Duration
	blockedFor time.Duration // a lower bound
	known      bool          // blockedFor is known
	stack      []string      // innermost first; only the wait channel if stacks can't be read
	unread     error         // why the stack can't be read
	cause      hostfs.WaitCause
	owner      process.Owner
	file       *taskFile // the file it works on; nil: unknown
}

// taskFile is a file that a task works on, and its filesystem.
type taskFile struct {
	path       string // as the task sees it
	device     string // block device; empty: none, or another kind of filesystem
	number     string
	mountPoint string
	fsType     string
	source     string
}

func (h host) lookAtBlockedTask(stat hostfs.Stat, ran *lastRan) *blockedTask {
	t := &blockedTask{
		pid: int(stat.PID), comm: display.Safe(stat.Comm, 64), state: stat.State, startTime: stat.StartTime,
	}
	if stat.State == 'D' || stat.State == 'S' {
		t.blockedFor, t.known = ran.ago(t.pid, stat.CPU)
	}
	return t
}

// explain reads the facts that show why the task sleeps. Each read may hang, because the task may
// hold the lock that the read needs. None accesses the task's memory, so there is no command line.
func (h host) explain(ctx context.Context, t *blockedTask, f *operation.Finding) {
	asleep, err := operation.Look(ctx, h.patient, operation.LookLimit, func() (sleep, error) { return h.sleepOf(t.pid) })
	if t.unread = err; err != nil {
		f.Note("kernel stacks can't be read (needs CAP_SYS_ADMIN): %v; using wait channels instead", err)
	}
	if t.stack = asleep.frames; len(t.stack) == 0 {
		// This takes no lock, so it can't hang.
		channel, err := h.FS.WaitChannel(t.pid)
		if channel != "" {
			t.stack = []string{channel}
		} else if err != nil && !process.IsGone(err) {
			f.Note("wait channels can't be read (needs CAP_SYS_PTRACE): %v", err)
		}
	}
	t.cause = hostfs.WaitCauseOf(t.stack)
	if task, err := h.FS.Task(t.pid); err == nil {
		t.tgid = int(task.TGID)
	}
	t.owner, err = process.OwnerOf(ctx, h.Host, h.patient, t.pid)
	if err != nil && !process.IsGone(err) {
		f.Note("can't determine the owner of %s: %v", process.TaskName(t.comm, t.pid), err)
	}
	if t.waitsElsewhere() {
		return
	}
	if t.file = h.fileOf(t.pid, asleep.call); t.file == nil {
		t.file = h.fileOfThread(t)
	}
}

// waitsElsewhere reports whether the task waits for something other than the file of its system
// call: in a page fault in its own memory, which may map another file, or for memory.
func (t *blockedTask) waitsElsewhere() bool {
	return t.cause.Kind == hostfs.WaitMemoryReclaim || slices.ContainsFunc(t.stack, func(frame string) bool {
		return strings.HasPrefix(hostfs.FrameFunction(frame), "handle_mm_fault")
	})
}

// sleep is where a task sleeps in the kernel.
type sleep struct {
	frames []string        // innermost first
	call   *hostfs.Syscall // the system call it is in; nil: none, or it can't be read
}

// sleepOf reads where a task sleeps. It returns an error if the frames can't be read, but none if
// the task has ended.
func (h host) sleepOf(pid int) (s sleep, err error) {
	if s.frames, err = h.FS.KernelStack(pid); process.IsGone(err) { // the kernel may lack the file, or the task has ended
		if _, statErr := h.FS.Stat(pid); process.IsGone(statErr) {
			return s, nil
		}
	}
	if call, ok, callErr := h.FS.Syscall(pid); callErr == nil && ok {
		s.call = &call
	}
	return s, err
}

// heldBy uses the kernel's record of a lock holder, if the stack does not show what the task waits
// for.
func (t *blockedTask) heldBy(holder int) {
	if holder > 0 && t.cause.Kind == hostfs.WaitUnknown {
		t.cause = hostfs.WaitCause{
			Kind: hostfs.WaitLock, Function: t.cause.Function,
			Reason: fmt.Sprintf("a lock held by %d, according to the kernel", holder),
		}
	}
}

// fileOf returns the file that the task's system call works on; nil if it is in no system call that
// takes a file.
func (h host) fileOf(tid int, call *hostfs.Syscall) *taskFile {
	if call == nil || !takesFile(call.Number) {
		return nil
	}
	fd := int(int32(call.Args[0])) // the kernel takes the low half, too
	file, err := h.FS.OpenFile(tid, fd)
	if err != nil {
		return nil
	}
	m, err := h.FS.FileMount(tid, fd)
	if err != nil {
		return nil
	}
	t := &taskFile{
		path:   file.Shown(),
		number: fmt.Sprintf("%d:%d", m.Major, m.Minor),
		fsType: display.Safe(m.FSType, 64),
		source: display.Safe(m.Source, operation.MaxShown),
	}
	// Use the task's own mount point, unless the node has the mount, too.
	t.mountPoint = display.Safe(m.Path, operation.MaxShown)
	if table, err := h.FS.MountTable(); err == nil {
		if at := table.At(m.Major, m.Minor); len(at) > 0 {
			t.mountPoint = at[0].Path
		}
	}
	if m.Major != 0 {
		t.device = h.FS.Device(m.Major, m.Minor).Name
	}
	return t
}

// fileOfThread returns the filesystem that a kernel thread works for, if its name shows it.
func (h host) fileOfThread(t *blockedTask) *taskFile {
	status, err := h.FS.ProcStatus(t.pid)
	if err != nil || !status.KernelThread { // a process can have any name
		return nil
	}
	name, path := h.threadsDevice(t.comm)
	major, minor, err := h.FS.DeviceNumber(name)
	if err != nil {
		return nil
	}
	f := &taskFile{path: path, device: name, source: "/dev/" + name, number: fmt.Sprintf("%d:%d", major, minor)}
	if table, err := h.FS.MountTable(); err == nil {
		if at := table.At(major, minor); len(at) > 0 {
			f.mountPoint, f.fsType = at[0].Path, at[0].FSType
		}
	}
	return f
}

// threadsDevice returns the device in the name of a kernel thread: jbd2/sda1-8, xfsaild/sda1,
// kworker/u8:3+flush-8:0. A thread that does the I/O of a loop device (kworker/u8:0+loop1) works on
// its backing file, whose path is returned, too.
func (h host) threadsDevice(comm string) (name, path string) {
	if rest, ok := strings.CutPrefix(comm, "jbd2/"); ok {
		return rest[:max(0, strings.LastIndexByte(rest, '-'))], "" // the journal's inode follows
	}
	if rest, ok := strings.CutPrefix(comm, "xfsaild/"); ok {
		return rest, ""
	}
	if _, number, ok := strings.Cut(comm, "+flush-"); ok {
		if major, minor, err := hostfs.ParseDeviceNumber(number); err == nil {
			return h.FS.Device(major, minor).Name, ""
		}
	}
	_, loop, _ := strings.Cut(comm, "+")
	path, err := h.FS.LoopBackingFile(loop)
	table, tableErr := h.FS.MountTable()
	// An anonymous or deleted file has no path.
	if err != nil || tableErr != nil || strings.HasPrefix(path, "/memfd:") || strings.HasSuffix(path, " (deleted)") {
		return "", ""
	}
	if m := disk.MountOfPath(table.Mounts(), path); m != nil && m.Major != 0 {
		return h.FS.Device(m.Major, m.Minor).Name, path
	}
	return "", ""
}

// takesFile reports whether the first argument of a system call is the file it works on.
func takesFile(number int) bool {
	switch number {
	case unix.SYS_READ, unix.SYS_WRITE, unix.SYS_PREAD64, unix.SYS_PWRITE64, unix.SYS_READV, unix.SYS_WRITEV,
		unix.SYS_PREADV, unix.SYS_PWRITEV, unix.SYS_PREADV2, unix.SYS_PWRITEV2, unix.SYS_FSYNC, unix.SYS_FDATASYNC,
		unix.SYS_SYNC_FILE_RANGE, unix.SYS_SYNCFS, unix.SYS_FALLOCATE, unix.SYS_FTRUNCATE, unix.SYS_FSTAT,
		unix.SYS_FSTATFS, unix.SYS_GETDENTS64, unix.SYS_LSEEK, unix.SYS_IOCTL, unix.SYS_FLOCK, unix.SYS_FCHMOD,
		unix.SYS_FCHOWN, unix.SYS_FADVISE64, unix.SYS_SENDFILE:
		return true
	}
	return false
}

// write adds the task to stacks.txt.
func (t *blockedTask) write(w *operation.Page) {
	w.Printf("%s tgid %d state %c", process.TaskName(t.comm, t.pid), t.tgid, t.state)
	if t.known {
		w.Printf(" not run for %s", t.blockedFor.Round(time.Millisecond))
	}
	if owner := t.owner.String(); owner != "" {
		w.Printf(" in %s", owner)
	}
	w.Printf("\n  waits for %s: %s\n", t.cause.Kind, t.cause.String())
	switch m := t.file; {
	case m == nil:
	case m.path == "":
		w.Printf("  works for %s at %s (%s)\n", m.device, m.mountPoint, m.fsType)
	default:
		w.Printf("  file %s on %s (%s %s)\n", m.path, m.mountPoint, m.fsType, m.source)
	}
	for _, frame := range t.stack {
		w.Printf("    %s\n", frame)
	}
	w.Printf("\n")
}

// lastRan determines how long ago tasks last ran on a CPU. The scheduler stamps a task with the
// clock of its CPU. These clocks differ, because each omits the time that interrupts and the
// hypervisor took from its CPU, so "now" must be the time of the same CPU. lastRan is not safe for
// concurrent use.
type lastRan struct {
	fs  hostfs.FS
	now map[int]time.Duration // by CPU; negative: unknown
}

func newLastRan(fs hostfs.FS) *lastRan { return &lastRan{fs: fs, now: map[int]time.Duration{}} }

// ago returns how long ago a sleeping task last ran on its CPU. It is a lower bound: it lacks
// suspends and the time that the CPU's clock omits. It returns false if the kernel doesn't report
// it (/proc/PID/sched).
func (l *lastRan) ago(tid, cpu int) (time.Duration, bool) {
	then, err := l.fs.ExecStart(tid)
	if err != nil || cpu < 0 || then == 0 { // 0: it was moved to that CPU, and has not run there yet
		return 0, false
	}
	now, ok := l.now[cpu]
	if !ok {
		now = schedClock(cpu)
		l.now[cpu] = now
	}
	if now < 0 || now < then {
		return 0, false // or it ran in the meantime
	}
	return now - then, true
}

// schedClock returns the scheduler's clock of a CPU. It reads the clock from a task that runs
// there: a thread of this process, which it moves there for a moment. The result is negative if the
// thread can't run there (cpuset, offline).
func schedClock(cpu int) time.Duration {
	const unknown = -1
	var was, set unix.CPUSet
	runtime.LockOSThread()
	if unix.SchedGetaffinity(0, &was) != nil {
		runtime.UnlockOSThread()
		return unknown
	}
	set.Set(cpu)
	now, err := time.Duration(unknown), unix.SchedSetaffinity(0, &set)
	if err == nil {
		// This is our own process, so use our own /proc, not the node's.
		if now, err = hostfs.New("/").ExecStart(unix.Gettid()); err != nil {
			now = unknown
		}
		if unix.SchedSetaffinity(0, &was) != nil {
			return now // the thread stays locked, and ends with its goroutine
		}
	}
	// The thread must not end: a child with a parent-death signal dies with the thread that started
	// it.
	runtime.UnlockOSThread()
	return now
}
