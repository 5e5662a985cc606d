package bpf

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/cmd/kernosis/inject"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// The child processes of these tests run this binary again.
func TestMain(m *testing.M) {
	if inject.RunChild(os.Args) {
		return
	}
	if os.Args[0] == restorerArg0 {
		restorer(os.Args[1:])
		return
	}
	testenv.HoldKernelForProcess()
	os.Exit(m.Run())
}

const restorerArg0 = "kernosis-test-restorer"

// restorer writes its arguments (path, value, path, value …) when its stdin closes, which also
// happens if the test that started it is killed.
func restorer(args []string) {
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	for i := 0; i+1 < len(args); i += 2 {
		if err := os.WriteFile(args[i], []byte(args[i+1]), 0); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
}

// restoreLater writes files when the test ends, however it ends.
func restoreLater(t *testing.T, pathValue ...string) {
	t.Helper()
	r := &exec.Cmd{
		Path: "/proc/self/exe", Args: append([]string{restorerArg0}, pathValue...),
		Stderr: os.Stderr, SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	stdin, err := r.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := r.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		if err := r.Wait(); err != nil {
			t.Error(err)
		}
	})
	if _, err := bufio.NewReader(stdout).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
}

func writeFiles(t *testing.T, pathValue ...string) {
	t.Helper()
	for i := 0; i < len(pathValue); i += 2 {
		if err := os.WriteFile(pathValue[i], []byte(pathValue[i+1]), 0); err != nil {
			t.Fatal(err)
		}
	}
}

const sysctls = "/proc/sys/kernel/"

// setSysctls changes settings of the machine until the test ends.
func setSysctls(t *testing.T, nameValue ...string) {
	t.Helper()
	var before, during []string
	for i := 0; i < len(nameValue); i += 2 {
		path := sysctls + nameValue[i]
		old, err := os.ReadFile(path)
		if err != nil {
			t.Skipf("kernel has no khungtaskd: %v", err)
		}
		before = append(before, path, strings.TrimSpace(string(old)))
		during = append(during, path, nameValue[i+1])
	}
	restoreLater(t, before...)
	writeFiles(t, during...)
}

// hungRun drives one loaded hungtask stem like the agent, and keeps only records of the test's own
// tasks: tests of other packages hang tasks too.
type hungRun struct {
	t       *testing.T
	l       *Loaded
	walk    *TaskWalk
	hung    map[uint32][]HungTask
	resumed map[uint32][]HungTaskResumed
	exited  map[uint32][]HungTaskSleep
	// threshold and hangThreshold apply to each walk.
	threshold, hangThreshold time.Duration
	wake                     time.Duration // how often the kernel wakes waiters
}

func newHungRun(t *testing.T, pins *PinRoot) *hungRun {
	t.Helper()
	r := &hungRun{t: t, l: openStem(t, hungtask(), testKernel(t), pins), threshold: 300 * time.Millisecond}
	r.hung, r.resumed, r.exited = map[uint32][]HungTask{}, map[uint32][]HungTaskResumed{}, map[uint32][]HungTaskSleep{}
	r.openWalk()
	return r
}

func (r *hungRun) openWalk() {
	r.t.Helper()
	walk, err := NewTaskWalk(r.l)
	if err != nil {
		r.t.Fatal(err)
	}
	r.walk = walk
}

func (r *hungRun) drain() {
	r.t.Helper()
	if _, err := r.l.Drain(func(raw []byte) {
		h, err := ParseHeader(raw)
		if err != nil {
			r.t.Fatal(err)
		}
		switch h.Kind {
		case KindHungTask:
			rec, err := View[HungTask](raw)
			if err != nil {
				r.t.Fatal(err)
			}
			r.hung[rec.Task.PID] = append(r.hung[rec.Task.PID], *rec)
		case KindHungTaskResumed:
			rec, err := View[HungTaskResumed](raw)
			if err != nil {
				r.t.Fatal(err)
			}
			r.resumed[rec.Task.PID] = append(r.resumed[rec.Task.PID], *rec)
		default:
			r.t.Errorf("record of kind %d", h.Kind)
		}
	}); err != nil {
		r.t.Fatal(err)
	}
}

// look makes one walk and the steps that follow it.
func (r *hungRun) look() Asleep {
	r.t.Helper()
	if err := r.walk.Run(HungTimes{Walk: r.threshold, Khungtaskd: r.hangThreshold, Wake: r.wake}); err != nil {
		r.t.Fatal(err)
	}
	left, err := r.walk.Sweep(func(s *HungTaskSleep) {
		r.exited[s.Task.PID] = append(r.exited[s.Task.PID], *s)
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.drain()
	return left
}

// until calls do every few milliseconds until cond holds.
func (r *hungRun) until(what string, within time.Duration, do func(), cond func() bool) {
	r.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	within = testenv.Within(within)
	for end := time.Now().Add(within); ; <-tick.C {
		if do(); cond() {
			return
		}
		if time.Now().After(end) {
			r.t.Fatalf("not within %s: %s", within, what)
		}
	}
}

func (r *hungRun) lost() uint64 {
	r.t.Helper()
	n, err := r.l.RingFull()
	if err != nil {
		r.t.Fatal(err)
	}
	return n
}

func startHang(t *testing.T) (*inject.HungTask, inject.Hang) {
	t.Helper()
	h := &inject.HungTask{Limit: time.Minute}
	hang, err := h.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return h, hang
}

func taskComm(t *Task) string { return string(CString(t.Comm[:])) }

// stackNames returns the symbols of a stack, from kallsyms.
func stackNames(t *testing.T, addrs []uint64) string {
	t.Helper()
	f, err := os.Open("/proc/kallsyms")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	best := make([]uint64, len(addrs))
	names := make([]string, len(addrs))
	for s := bufio.NewScanner(f); s.Scan(); {
		var addr uint64
		var kind, name string
		if _, err := fmt.Sscanf(s.Text(), "%x %s %s", &addr, &kind, &name); err != nil || !strings.ContainsAny(kind, "tTwW") {
			continue
		}
		for i, a := range addrs {
			if addr < a && addr >= best[i] {
				best[i], names[i] = addr, name
			}
		}
	}
	return strings.Join(names, " ")
}

// 23 hangs at once: each is reported once, with its lock and the lock's holder, and so is the end
// of each.
func TestHungTasksByPoll(t *testing.T) {
	testKernel(t)
	const faults = 23
	r := newHungRun(t, nil)
	hasBlocker := r.l.kernel.HasField("task_struct", "blocker")
	var injected []*inject.HungTask
	var hangs []inject.Hang
	began := time.Now()
	for range faults {
		h, hang := startHang(t)
		injected, hangs = append(injected, h), append(hangs, hang)
	}
	started := time.Now()
	reported := func(n *int) bool {
		*n = 0
		for _, h := range hangs {
			*n += len(r.hung[uint32(h.Waiter.TID)])
		}
		return *n >= faults
	}
	var n int
	r.until("23 hangs", 5*time.Second, func() { r.look() }, func() bool { return reported(&n) })
	t.Logf("all reported %s after the last hang began", time.Since(started))
	for range 10 {
		r.look()
	}
	if reported(&n); n != faults {
		t.Errorf("%d hangs were reported %d times", faults, n)
	}
	locks := map[uint64]bool{}
	for i, h := range hangs {
		rec := r.hung[uint32(h.Waiter.TID)][0]
		if rec.Detector != HungByPoll || int(rec.Task.TGID) != h.Waiter.PID || taskComm(&rec.Task) != h.Waiter.Comm {
			t.Errorf("got %s[%d/%d] by %d, want %v by poll", taskComm(&rec.Task), rec.Task.PID, rec.Task.TGID, rec.Detector, h.Waiter)
		}
		if d := time.Duration(rec.BlockedNS); d < r.threshold || d > time.Since(began) {
			t.Errorf("blocked for %s", d)
		}
		if rec.StackDepth < 4 {
			t.Errorf("stack of %d frames", rec.StackDepth)
		}
		if i == 0 { // read kallsyms only once
			if name := stackNames(t, []uint64{rec.Called + 1}); !strings.Contains(name, "mutex_lock") {
				t.Errorf("called %q, want mutex_lock", name)
			}
		}
		if !hasBlocker {
			continue // v6.16 and CONFIG_DETECT_HUNG_TASK_BLOCKER
		}
		if rec.Lock != LockMutex || rec.HolderHint != 0 || rec.LockAddr&7 != 0 || rec.LockAddr == 0 {
			t.Errorf("lock %d at %#x, hint %d, want a mutex", rec.Lock, rec.LockAddr, rec.HolderHint)
		}
		if int(rec.Holder.PID) != h.Holder.TID || int(rec.Holder.TGID) != h.Holder.PID || taskComm(&rec.Holder) != h.Holder.Comm {
			t.Errorf("holder %s[%d/%d], want %v", taskComm(&rec.Holder), rec.Holder.PID, rec.Holder.TGID, h.Holder)
		}
		locks[rec.LockAddr] = true
	}
	if hasBlocker && len(locks) != faults {
		t.Errorf("%d locks, want %d", len(locks), faults)
	}
	first := r.hung[uint32(hangs[0].Waiter.TID)][0]
	if names := stackNames(t, first.Stack[:first.StackDepth]); !strings.Contains(names, "pipe_write") {
		t.Errorf("stack %q has no pipe_write", names)
	}

	for _, h := range injected {
		if err := h.Heal(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		r.look()
	}
	for _, h := range hangs {
		pid := uint32(h.Waiter.TID)
		if len(r.resumed[pid]) != 1 || r.resumed[pid][0].Exited != 0 || len(r.exited[pid]) != 0 {
			t.Errorf("end of %d reported %d+%d times, want once as resumed", pid, len(r.resumed[pid]), len(r.exited[pid]))
			continue
		}
		if rec := r.resumed[pid][0]; rec.BlockedNS < r.hung[pid][0].BlockedNS || rec.Detector != HungByPoll {
			t.Errorf("resumed after %d ns by %d, was reported at %d", rec.BlockedNS, rec.Detector, r.hung[pid][0].BlockedNS)
		}
	}
	if n := r.lost(); n != 0 {
		t.Errorf("%d records lost", n)
	}
}

// A task killed while it hangs exits without running in user space again.
func TestHungTaskExits(t *testing.T) {
	testKernel(t)
	r := newHungRun(t, nil)
	h, hang := startHang(t)
	pid := uint32(hang.Waiter.TID)
	r.until("hang reported", 5*time.Second, func() { r.look() }, func() bool { return len(r.hung[pid]) == 1 })
	if err := unix.Kill(hang.Waiter.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	r.look()
	if len(r.resumed[pid])+len(r.exited[pid]) != 0 {
		t.Error("a signal that is pending ended the hang")
	}
	var kept []bool // at each Settle after the exit was reported: whether a kill would have it reported again
	r.l.Settle = func() {
		if len(r.exited[pid]) > 0 {
			var s HungTaskSleep
			kept = append(kept, r.walk.blocked.Lookup(&pid, &s) == nil)
		}
	}
	h.Close()
	for range 3 {
		r.look()
	}
	if len(kept) == 0 || !kept[0] {
		t.Errorf("kept when the exit was settled: %v", kept)
	}
	if len(r.exited[pid]) != 1 || len(r.resumed[pid]) != 0 {
		t.Fatalf("end reported %d times as exited, %d times as resumed, want once as exited", len(r.exited[pid]), len(r.resumed[pid]))
	}
	if s := r.exited[pid][0]; taskComm(&s.Task) != hang.Waiter.Comm || s.BlockedFor() < r.threshold {
		t.Errorf("exited %+v", s)
	}
}

// khungtaskd finds the hang repeatedly, even with its warnings used up, and so do the walks. It is
// reported once.
func TestHungTaskByKhungtaskd(t *testing.T) {
	testenv.OnlyInTestAll(t)
	testKernel(t)
	if panics, err := os.ReadFile(sysctls + "hung_task_panic"); err != nil || strings.TrimSpace(string(panics)) != "0" {
		t.Skipf("hung_task_panic is %q (%v)", panics, err)
	}
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		t.Fatal(err)
	}
	defer stats.Close()
	r := newHungRun(t, nil)
	r.threshold = 2 * time.Second
	r.look() // like an agent that has been running for long when the hang begins
	_, hang := startHang(t)
	pid := uint32(hang.Waiter.TID)
	setSysctls(t, "hung_task_timeout_secs", "2", "hung_task_check_interval_secs", "1", "hung_task_warnings", "0")
	r.until("hang reported", 10*time.Second, r.drain, func() bool { return len(r.hung[pid]) > 0 })
	rec := r.hung[pid][0]
	if d := time.Duration(rec.BlockedNS); rec.Detector != HungByKhungtaskd || d < 2*time.Second || d > 5*time.Second {
		t.Errorf("reported by %d after %s, want by khungtaskd after 2 to 4 s", rec.Detector, d)
	}
	if names := stackNames(t, rec.Stack[:rec.StackDepth]); !strings.Contains(names, "pipe_write") {
		t.Errorf("stack %q has no pipe_write", names)
	}
	fired := func() uint64 {
		s, err := r.l.programs[HungtaskProgHangBtf].Stats()
		if err != nil {
			t.Fatal(err)
		}
		return s.RunCount
	}
	from := fired()
	r.until("3 more checks of khungtaskd", 15*time.Second, func() { r.look() }, func() bool { return fired() >= from+3 })
	if n := len(r.hung[pid]); n != 1 {
		t.Errorf("reported %d times", n)
	}
	if left := r.look(); left.Reported < 1 {
		t.Errorf("a walk left %+v, want a reported task", left)
	}
	s, _ := r.l.programs[HungtaskProgHangBtf].Stats()
	t.Logf("hang_btf: %d runs, %s each", s.RunCount, s.Runtime/time.Duration(s.RunCount))
}

// A hang that khungtaskd finds before the agent's configured threshold is reported only after that
// threshold.
func TestHungTaskThresholdHoldsForKhungtaskd(t *testing.T) {
	testenv.OnlyInTestAll(t)
	testKernel(t)
	r := newHungRun(t, nil)
	r.threshold, r.hangThreshold = 4*time.Second, 4*time.Second
	r.look()
	_, hang := startHang(t)
	pid := uint32(hang.Waiter.TID)
	setSysctls(t, "hung_task_timeout_secs", "1", "hung_task_check_interval_secs", "1", "hung_task_warnings", "0")
	r.until("hang reported", 10*time.Second, r.drain, func() bool { return len(r.hung[pid]) > 0 })
	if d := time.Duration(r.hung[pid][0].BlockedNS); d < r.threshold {
		t.Errorf("reported after %s, want %s", d, r.threshold)
	}
}

// With khungtaskd switched off only the walk detects hangs. The lock of a frozen filesystem records
// no holder.
func TestHungTaskOnFrozenFilesystem(t *testing.T) {
	testKernel(t)
	r := newHungRun(t, nil)
	setSysctls(t, "hung_task_timeout_secs", "0")
	z := &inject.FSFreeze{StateDir: t.TempDir(), Limit: time.Minute}
	hang, err := z.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := z.Close(); err != nil {
			t.Error(err)
		}
	})
	pid := uint32(hang.Waiter.TID)
	r.until("hang reported", 5*time.Second, func() { r.look() }, func() bool { return len(r.hung[pid]) > 0 })
	rec := r.hung[pid][0]
	if rec.Lock != LockNone || rec.LockAddr != 0 || rec.Holder.PID != 0 {
		t.Errorf("lock %d at %#x held by %d, want none", rec.Lock, rec.LockAddr, rec.Holder.PID)
	}
	if names := stackNames(t, rec.Stack[:rec.StackDepth]); !strings.Contains(names, "percpu_rwsem_wait") && !strings.Contains(names, "percpu_down_read") {
		t.Errorf("stack %q has no percpu_rwsem", names)
	}
	if err := z.Heal(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.until("end reported", 5*time.Second, func() { r.look() }, func() bool { return len(r.resumed[pid]) == 1 })
}

// Two tasks that wait for one lock report the same address.
func TestTwoHungTasksOneLock(t *testing.T) {
	testKernel(t)
	r := newHungRun(t, nil)
	if !r.l.kernel.HasField("task_struct", "blocker") {
		t.Skip("kernel records no blocker (v6.16, CONFIG_DETECT_HUNG_TASK_BLOCKER)")
	}
	h, hang := startHang(t)
	pidfd, err := unix.PidfdOpen(hang.Waiter.PID, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pidfd)
	pipe, err := unix.PidfdGetfd(pidfd, 3, 0) // the waiter's end of the pipe
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pipe)
	second, written := make(chan uint32), make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		second <- uint32(unix.Gettid())
		_, err := unix.Write(pipe, []byte{1})
		written <- err
	}()
	a, b := uint32(hang.Waiter.TID), <-second
	r.until("both reported", 5*time.Second, func() { r.look() }, func() bool { return len(r.hung[a]) > 0 && len(r.hung[b]) > 0 })
	ra, rb := r.hung[a][0], r.hung[b][0]
	if ra.LockAddr != rb.LockAddr || ra.Holder.PID != rb.Holder.PID || rb.Task.TGID != uint32(os.Getpid()) {
		t.Errorf("locks %#x and %#x, holders %d and %d", ra.LockAddr, rb.LockAddr, ra.Holder.PID, rb.Holder.PID)
	}
	if err := h.Heal(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-written; err != nil {
		t.Fatal(err)
	}
}

// faultingPage returns a page of this process. The first access to it sleeps until release is
// called; so do the kernel's accesses, with the locks they hold. touched returns once such an
// access was made.
func faultingPage(t *testing.T) (page []byte, touched, release func()) {
	t.Helper()
	const api, register, zeropage = 0xc018aa3f, 0xc020aa00, 0xc020aa04 // linux/userfaultfd.h
	fd, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|unix.O_NONBLOCK, 0, 0)
	if errno != 0 {
		t.Skipf("no userfaultfd: %v", errno)
	}
	t.Cleanup(func() { unix.Close(int(fd)) })
	page, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	start, size := uint64(uintptr(unsafe.Pointer(&page[0]))), uint64(len(page))
	ioctl := func(request uintptr, arg *[4]uint64) {
		t.Helper()
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, request, uintptr(unsafe.Pointer(arg))); errno != 0 && errno != unix.EEXIST {
			t.Fatal(errno)
		}
	}
	ioctl(api, &[4]uint64{0xaa})
	ioctl(register, &[4]uint64{start, size, 1})
	touched = func() {
		t.Helper()
		for end := time.Now().Add(testenv.Within(5 * time.Second)); ; {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(time.Until(end).Milliseconds()))
			switch {
			case err == unix.EINTR:
			case n == 1:
				return
			default:
				t.Fatalf("nobody touches the page: %v", err)
			}
		}
	}
	release = func() { ioctl(zeropage, &[4]uint64{start, size}) }
	t.Cleanup(release) // before the descriptor is closed
	return page, touched, release
}

// detachedTmpfs returns the root of a tmpfs that is mounted nowhere, so that it always ends with
// the process.
func detachedTmpfs(t *testing.T) string {
	t.Helper()
	fs, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fs)
	if err := unix.FsconfigCreate(fs); err != nil {
		t.Fatal(err)
	}
	root, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(root) })
	return fmt.Sprintf("/proc/self/fd/%d", root)
}

// onUnsignalledThread makes a system call on a thread of its own with all signals blocked. It
// returns the thread at once.
func onUnsignalledThread(call func() error) (tid uint32, done chan error) {
	started, done := make(chan uint32), make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with its signal mask
		all := unix.Sigset_t{}
		for i := range all.Val {
			all.Val[i] = ^all.Val[i]
		}
		// A pending signal would turn the sleep in the fault into a busy loop.
		err := unix.PthreadSigmask(unix.SIG_BLOCK, &all, nil)
		started <- uint32(unix.Gettid())
		done <- errors.Join(err, call())
	}()
	return <-started, done
}

// An inode's rwsem: if a writer holds it, the owner is certain; if readers hold it, the kernel
// remembers only one of them.
func TestHungTaskOnRWSem(t *testing.T) {
	testenv.OnlyInTestAll(t)
	testKernel(t)
	write := func(path string, data []byte) error {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = unix.Write(int(f.Fd()), data)
		return err
	}
	// Both take the lock, and then touch the page.
	holdExclusive := func(dir string, page []byte) error { return write(filepath.Join(dir, "file"), page) }
	holdShared := func(dir string, page []byte) error {
		f, err := os.Open(dir)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = unix.ReadDirent(int(f.Fd()), page)
		return err
	}
	writeFile := func(dir string) error { return write(filepath.Join(dir, "file"), []byte("y")) }
	mkdir := func(dir string) error { return os.Mkdir(filepath.Join(dir, "new"), 0o700) }
	names := 0 // a repeated lookup may be answered without the lock
	lookUp := func(dir string) error {
		names++
		if err := unix.Access(filepath.Join(dir, fmt.Sprintf("other%d", names)), unix.F_OK); err != unix.ENOENT {
			return err
		}
		return nil
	}
	for _, c := range []struct {
		name string
		hold func(dir string, page []byte) error
		want []func(dir string) error // called one after the other; the record of the last one is checked
		lock uint8
		hint uint8
		call string
	}{
		{"held by a writer", holdExclusive, []func(string) error{writeFile}, LockRWSemWrite, 0, "down_write"},
		{"held by a reader", holdShared, []func(string) error{mkdir}, LockRWSemWrite, 1, "down_write"},
		{"queued behind a writer", holdShared, []func(string) error{mkdir, lookUp}, LockRWSemRead, 1, "down_read"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newHungRun(t, nil)
			dir := detachedTmpfs(t)
			writeFiles(t, filepath.Join(dir, "file"), "x")
			page, touched, release := faultingPage(t)
			holder, held := onUnsignalledThread(func() error { return c.hold(dir, page) })
			calls := []chan error{held}
			inState := func(tid uint32, state string) func() bool {
				return func() bool {
					stat, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/stat", tid))
					_, rest, _ := strings.Cut(string(stat), ") ")
					return err == nil && strings.HasPrefix(rest, state)
				}
			}
			touched()
			var waiter uint32
			for _, want := range c.want {
				start := func() (slept func() bool) {
					tid, done := onUnsignalledThread(func() error { return want(dir) })
					waiter, calls = tid, append(calls, done)
					return inState(tid, "D")
				}
				slept := start()
				r.until("waiter asleep", 20*time.Second, func() {
					// Before 5.11 a spinning reader may take the lock although a writer waits for
					// it (rwsem_try_read_lock_unqueued).
					if last := len(calls) - 1; len(calls[last]) > 0 {
						if err := <-calls[last]; err != nil {
							t.Fatal(err)
						}
						calls = calls[:last]
						slept = start()
					}
				}, func() bool { return slept() })
			}
			r.until("hang reported", 5*time.Second, func() { r.look() }, func() bool { return len(r.hung[waiter]) > 0 })
			rec := r.hung[waiter][0]
			release()
			for _, done := range calls {
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
			// On 5.10 the slow path is a frame of the stack rather than the called function.
			if names := stackNames(t, append([]uint64{rec.Called + 1}, rec.Stack[:rec.StackDepth]...)); !strings.Contains(names, c.call) {
				t.Errorf("stack %q has no %s", names, c.call)
			}
			if !r.l.kernel.HasField("task_struct", "blocker") { // 6.16 records it only for mutexes
				t.Skip("kernel records no blocker of an rwsem (v6.17, CONFIG_DETECT_HUNG_TASK_BLOCKER)")
			}
			if rec.Lock != c.lock || rec.HolderHint != c.hint || rec.Holder.PID != holder {
				t.Errorf("lock %d held by %d (hint %d), want %d by %d (hint %d)", rec.Lock, rec.Holder.PID, rec.HolderHint, c.lock, holder, c.hint)
			}
		})
	}
}

// After a restart the hang is reported once more, and so is its end.
func TestHungTaskAcrossRestart(t *testing.T) {
	testKernel(t)
	pins, reopen := testPins(t)
	r := newHungRun(t, pins)
	h, hang := startHang(t)
	pid := uint32(hang.Waiter.TID)
	r.until("hang reported", 5*time.Second, func() { r.look() }, func() bool { return len(r.hung[pid]) == 1 })
	r.l.Close()
	pins.Close()

	again := newHungRun(t, reopen())
	for range 5 {
		again.look()
	}
	if n := len(again.hung[pid]); n != 1 {
		t.Errorf("reported %d times after the restart", n)
	}
	if err := h.Heal(t.Context()); err != nil {
		t.Fatal(err)
	}
	again.look()
	if n := len(again.resumed[pid]); n != 1 {
		t.Errorf("end reported %d times after the restart", n)
	}
}

// More tasks hang at a restart than the ring has room for: the next walk reports the rest.
func TestHungTasksAcrossRestartBeyondTheRing(t *testing.T) {
	testKernel(t)
	pins, reopen := testPins(t)
	r := newHungRun(t, pins)
	_, hang := startHang(t)
	pid := uint32(hang.Waiter.TID)
	r.until("the hang", 5*time.Second, func() { r.look() }, func() bool { return len(r.hung[pid]) == 1 })
	r.l.Close()
	pins.Close()

	again := newHungRun(t, reopen())
	lost := func() uint64 {
		n, err := again.l.RingFull()
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	// As if hundreds of other hangs had filled the ring first.
	for n, before := uint64(0), lost(); lost() == before; n++ {
		if err := again.l.RunCanary(n); err != nil {
			t.Fatal(err)
		}
	}
	if err := again.walk.Run(HungTimes{Walk: again.threshold}); err != nil {
		t.Fatal(err)
	}
	if _, err := again.l.Drain(func([]byte) {}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		again.look()
	}
	if n := len(again.hung[pid]); n != 1 {
		t.Errorf("reported %d times after the restart", n)
	}
}

// Short uninterruptible sleeps (each vfork is one) are no hangs, however many walks find a task in
// one.
func TestBusySystemHasNoHungTasks(t *testing.T) {
	testenv.OnlyInTestAll(t)
	testKernel(t)
	r := newHungRun(t, nil)
	r.threshold = testenv.Within(400 * time.Millisecond) // a child without CPU for longer would be a hang of its parent
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second+r.threshold)
	defer cancel()
	// Each child lives 50 ms as its parent's vfork, so that most walks find a thread of ours in
	// state D.
	done := make(chan int)
	for range 4 {
		go func() {
			n := 0
			for ; ctx.Err() == nil; n++ {
				_ = exec.CommandContext(ctx, "/proc/self/exe", "-test.run=^$").Run()
			}
			done <- n
		}()
	}
	most := 0
	for ctx.Err() == nil {
		r.look()
		most = max(most, len(r.walk.sleeps))
	}
	children := 0
	for range 4 {
		children += <-done
	}
	r.look()
	t.Logf("%d children, up to %d sleeps remembered at once", children, most)
	for pid, recs := range r.hung {
		if recs[0].Task.TGID == uint32(os.Getpid()) {
			t.Errorf("thread %d of this test reported as hung", pid)
		}
	}
	if n := len(r.resumed) + len(r.exited); n > len(r.hung) {
		t.Errorf("%d ends for %d hangs", n, len(r.hung))
	}
}

// A frozen task looks hung on kernels before v6.1, but only waits to be thawed.
func TestFrozenTasksAreNotHung(t *testing.T) {
	testKernel(t)
	dir := t.TempDir()
	if err := unix.Mount("cgroup", dir, "cgroup", 0, "freezer"); err != nil {
		t.Skipf("no v1 freezer (with v2 a frozen task's sleep is interruptible): %v", err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	group := testGroup(t, dir)
	// A restorer only waits: here it is the process to freeze.
	frozen := &exec.Cmd{Path: "/proc/self/exe", Args: []string{restorerArg0}}
	stdin, err := frozen.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := frozen.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		frozen.Wait()
	})
	state := filepath.Join(group, "freezer.state")
	restoreLater(t, state, "THAWED")
	writeFiles(t, filepath.Join(group, "cgroup.procs"), strconv.Itoa(frozen.Process.Pid), state, "FROZEN")

	r := newHungRun(t, nil)
	r.until("frozen", 5*time.Second, func() {}, func() bool {
		b, err := os.ReadFile(state)
		return err == nil && strings.TrimSpace(string(b)) == "FROZEN"
	})
	// A hang that begins later is reported, the frozen task is not.
	_, hang := startHang(t)
	pid := uint32(hang.Waiter.TID)
	r.until("hang reported", 5*time.Second, func() { r.look() }, func() bool { return len(r.hung[pid]) > 0 })
	for pid, recs := range r.hung {
		if int(recs[0].Task.TGID) == frozen.Process.Pid {
			t.Errorf("frozen thread %d reported as hung", pid)
		}
	}
}

// The variant without a stack is used where tp_btf is refused.
func TestHangRawAttaches(t *testing.T) {
	s := hungtask()
	k := testKernel(t)
	if _, ok := k.TracepointArgs("sched_process_hang"); !ok {
		t.Skip("kernel has no khungtaskd")
	}
	s.hooks[0].optional = false
	s.hooks[0].variants = s.hooks[0].variants[1:]
	openStem(t, s, k, nil)
}

// The length of a tick according to the clocks, and as jiffies advance.
func TestKernelHZ(t *testing.T) {
	l := openStem(t, hungtask(), testKernel(t), nil)
	hz, err := kernelHZ()
	if err != nil {
		t.Fatal(err)
	}
	canary := func() (c Canary) {
		if err := l.RunCanary(1); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Drain(func(raw []byte) {
			if v, err := View[Canary](raw); err == nil && v.H.Kind == KindCanary {
				c = *v
			}
		}); err != nil {
			t.Fatal(err)
		}
		return c
	}
	// A virtual CPU that did not run for a while catches up on its ticks afterwards.
	measured := 0.0
	for first, passed := canary(), time.Duration(0); passed < 20*time.Second; {
		last := canary()
		if passed = time.Duration(last.H.BootNS - first.H.BootNS); passed < 500*time.Millisecond {
			continue
		}
		measured = float64(last.Jiffies-first.Jiffies) / passed.Seconds()
		if diff := measured/float64(hz) - 1; -0.05 < diff && diff < 0.05 {
			return
		}
	}
	t.Errorf("clocks say %d ticks a second, jiffies %.1f", hz, measured)
}

func BenchmarkTaskWalk(b *testing.B) {
	if os.Geteuid() != 0 {
		b.Skip("needs root to load programs")
	}
	k, err := OpenKernel()
	if err != nil {
		b.Fatal(err)
	}
	l, err := Open(hungtask(), k, nil)
	b.Cleanup(func() { l.Close() })
	if err != nil {
		b.Fatal(err)
	}
	w, err := NewTaskWalk(l)
	if err != nil {
		b.Fatal(err)
	}
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		b.Fatal(err)
	}
	defer stats.Close()
	for b.Loop() {
		if err := w.Run(HungTimes{Walk: time.Hour, Khungtaskd: time.Hour, Wake: time.Minute}); err != nil {
			b.Fatal(err)
		}
		if _, err := w.Sweep(func(*HungTaskSleep) {}); err != nil {
			b.Fatal(err)
		}
	}
	s, err := l.programs[HungtaskProgPollTasks].Stats()
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(s.RunCount)/float64(b.N), "tasks/op")
	b.ReportMetric(float64(s.Runtime.Nanoseconds())/float64(s.RunCount), "bpf-ns/task")
}
