package bpf

import (
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/vmtest/disklab"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// wakingKernel makes the kernel wake tasks that wait for direct I/O or a flush every two seconds
// (by default every 60 s), until the test ends.
func wakingKernel(t *testing.T, r *hungRun) {
	t.Helper()
	setSysctls(t, "hung_task_check_interval_secs", "1", "hung_task_timeout_secs", "4")
	r.threshold, r.wake = 4*time.Second, 2*time.Second
}

// ddOn starts dd in a process of its own, which may hang on a frozen disk. It returns dd's pid and
// its standard input. dd ends with the test, once thaw lets it.
func ddOn(t *testing.T, thaw func(), args ...string) (pid uint32, stdin io.WriteCloser) {
	t.Helper()
	cmd := exec.Command("dd", append(args, "status=none", "bs=4096")...)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		thaw()
		if err := cmd.Wait(); err != nil {
			t.Errorf("dd %v: %v", args, err)
		}
	})
	return uint32(cmd.Process.Pid), stdin
}

// awaitSleep waits until a process is in uninterruptible sleep.
func awaitSleep(t *testing.T, pid uint32) {
	t.Helper()
	testenv.Until(t, "dd waits for the disk", 10*time.Second, func() bool {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(int(pid)) + "/stat")
		_, rest, _ := strings.Cut(string(stat), ") ")
		return err == nil && strings.HasPrefix(rest, "D")
	})
}

// Direct I/O and flushes wait repeatedly, for half the kernel's timeout each time: one wait is one
// hang, although khungtaskd never finds it.
func TestHungTaskThatIsWokenToWaitOn(t *testing.T) {
	testenv.OnlyInTestAll(t)
	testKernel(t)
	disk := disklab.NewExt4(t, 32<<20)
	device := disk.Upper()
	r := newHungRun(t, nil)
	wakingKernel(t, r)
	thaw := disk.Freeze()
	var pids []uint32
	for i := range 23 {
		var args []string
		switch at := strconv.Itoa(i); i % 3 {
		case 0:
			args = []string{"if=/dev/zero", "of=" + device, "oflag=direct", "conv=notrunc", "count=1", "seek=" + at}
		case 1:
			args = []string{"if=" + device, "of=/dev/null", "iflag=direct", "count=1", "skip=" + at}
		default:
			args = []string{"if=/dev/null", "of=" + device, "conv=notrunc,fsync"}
		}
		pid, _ := ddOn(t, thaw, args...)
		if i == 0 {
			awaitSleep(t, pid) // the device handles one request after the other
		}
		pids = append(pids, pid)
	}
	reported := func() (n int) {
		for _, pid := range pids {
			n += len(r.hung[pid])
		}
		return n
	}
	// An agent's walks are seconds apart. If two walks follow each other at once, both may find a
	// task that was woken and waits for a CPU, which counts as the end of its wait.
	look := func() {
		time.Sleep(r.wake / 8)
		r.look()
	}
	r.until("23 hangs", 15*time.Second, look, func() bool { return reported() >= len(pids) })
	// Wait for two more wake-ups.
	for end := time.Now().Add(2 * r.wake * 5 / 4); time.Now().Before(end); {
		look()
	}
	for i, pid := range pids {
		if n := len(r.hung[pid]); n != 1 || len(r.resumed[pid]) != 0 {
			t.Errorf("dd %d: reported %d times, its end %d times while it hangs", i, n, len(r.resumed[pid]))
		}
		if d := time.Duration(r.hung[pid][0].BlockedNS); d < r.threshold || d > 10*time.Second {
			t.Errorf("dd %d: blocked for %s", i, d)
		}
	}
}

// A task whose writes all complete, however slowly, does not hang.
func TestSlowWritesAreNoHang(t *testing.T) {
	testenv.OnlyInTestAll(t)
	k := testKernel(t)
	if !k.HasField("task_io_accounting", "write_bytes") {
		t.Skip("kernel does not count a task's I/O (CONFIG_TASK_IO_ACCOUNTING)")
	}
	disk := disklab.NewExt4(t, 32<<20)
	device := disk.Upper()
	r := newHungRun(t, nil)
	wakingKernel(t, r)
	thaw := func() {}
	pid, stdin := ddOn(t, func() { thaw() }, "of="+device, "oflag=direct", "conv=notrunc", "iflag=fullblock")
	block := make([]byte, 4096)
	// Nearly as long as the kernel lets it sleep, so that by the times alone it looks like one
	// wait.
	const slow = 1900 * time.Millisecond
	for range 5 {
		thaw = disk.Freeze()
		if _, err := stdin.Write(block); err != nil {
			t.Fatal(err)
		}
		awaitSleep(t, pid)
		for end := time.Now().Add(slow); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			r.look()
		}
		// Write the next block before this one completes, so that dd does not sleep in between.
		if _, err := stdin.Write(block); err != nil {
			t.Fatal(err)
		}
		thaw()
	}
	if n := len(r.hung[pid]); n != 0 {
		t.Errorf("reported %d times, first after %s", n, time.Duration(r.hung[pid][0].BlockedNS))
	}
}
