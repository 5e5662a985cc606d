package vmtest

import (
	"bufio"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// setSysctl sets a sysctl, given as a path below /proc/sys, until the end of the test.
func setSysctl(t *testing.T, path, value string) {
	t.Helper()
	setFile(t, filepath.Join("/proc/sys", path), value)
}

// setFile writes a file of the kernel and restores it at the end of the test.
func setFile(t *testing.T, path, value string) {
	t.Helper()
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(value), 0); err != nil {
		t.Fatal(err)
	}
	atEnd(t, func() error { return os.WriteFile(path, before, 0) })
}

// pretendSysctl makes readers of a sysctl read another value than the one in effect, until the end
// of the test.
func pretendSysctl(t *testing.T, path, value string) {
	t.Helper()
	path = filepath.Join("/proc/sys", path)
	file := filepath.Join(t.TempDir(), "value")
	if err := os.WriteFile(file, []byte(value+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(file, path, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	atEnd(t, func() error { return unix.Unmount(path, 0) })
}

// khungtaskd makes the kernel's own detector check each second for tasks that have hung for the
// given number of seconds, until the end of the test. 0 disables it.
func khungtaskd(t *testing.T, seconds string) {
	t.Helper()
	needConfig(t, "CONFIG_DETECT_HUNG_TASK")
	setSysctl(t, "kernel/hung_task_check_interval_secs", "1")
	setSysctl(t, "kernel/hung_task_timeout_secs", seconds) // last, because this wakes it
}

// khungtaskdFinds traces what the kernel's own detector detects, and returns a function that
// returns how often it detected each task so far, by thread ID.
func khungtaskdFinds(t *testing.T) func() map[int]int {
	t.Helper()
	dir := "/sys/kernel/tracing/instances/kn-" + strconv.FormatInt(time.Now().UnixNano(), 36)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	atEnd(t, func() error { return os.Remove(dir) })
	if err := os.WriteFile(filepath.Join(dir, "events/sched/sched_process_hang/enable"), []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
	return func() map[int]int {
		f, err := os.Open(filepath.Join(dir, "trace"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		n := map[int]int{}
		for s := bufio.NewScanner(f); s.Scan(); {
			_, task, ok := strings.Cut(s.Text(), "sched_process_hang: ")
			if !ok {
				continue
			}
			// comm=dd pid=811
			pid, err := strconv.Atoi(task[strings.LastIndex(task, "=")+1:])
			if err != nil {
				t.Fatalf("%q: %v", s.Text(), err)
			}
			n[pid]++
		}
		return n
	}
}

// kernelLog reads what the kernel logs after opening it.
type kernelLog struct {
	t *testing.T
	f *os.File
}

func openKernelLog(t *testing.T) kernelLog {
	t.Helper()
	f, err := os.OpenFile("/dev/kmsg", os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if _, err := unix.Seek(int(f.Fd()), 0, unix.SEEK_END); err != nil {
		t.Fatal(err)
	}
	return kernelLog{t, f}
}

// matching returns the records since the last call that contain text.
func (l kernelLog) matching(text string) (found []string) {
	l.t.Helper()
	var record [8192]byte
	for {
		n, err := unix.Read(int(l.f.Fd()), record[:])
		switch {
		case errors.Is(err, unix.EAGAIN):
			return found
		case err != nil: // EPIPE: some records were overwritten
			l.t.Fatalf("kernel log: %v", err)
		}
		if s := string(record[:n]); strings.Contains(s, text) {
			found = append(found, s)
		}
	}
}
