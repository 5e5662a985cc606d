package vmtest

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/cmd/kernosis/inject"
)

// hog runs a process in the cgroup that allocates mib MiB and is the preferred OOM victim, and
// returns its PID once it has been killed.
func (g controlGroup) hog(t *testing.T, mib int) (pid uint32) {
	t.Helper()
	pid, killed := g.fill(t, mib)
	if !killed {
		t.Fatalf("a process that fills %d MiB was not killed", mib)
	}
	return pid
}

// fill is hog for a process that may also end by itself.
func (g controlGroup) fill(t *testing.T, mib int) (pid uint32, killed bool) {
	t.Helper()
	const script = `echo 1000 >/proc/self/oom_score_adj && exec dd if=/dev/zero of=/dev/null count=1 bs="$1"M`
	var cmd *exec.Cmd
	var said strings.Builder
	var err error
	// The memory of a victim that has exited may still be charged for a moment.
	eventually(t, "memory for a fork in "+g.path, 10*time.Second, func() bool {
		cmd = exec.Command("sh", "-c", script, "sh", strconv.Itoa(mib))
		cmd.Stderr = &said
		err = g.tryStart(t, cmd)
		return !errors.Is(err, unix.ENOMEM)
	})
	if err != nil {
		t.Fatalf("start %v: %v", cmd.Args, err)
	}
	err = cmd.Wait()
	ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	killed = ok && ws.Signaled() && ws.Signal() == unix.SIGKILL
	if err != nil && !killed {
		t.Fatalf("a process that fills %d MiB: %v: %s", mib, err, said.String())
	}
	return uint32(cmd.Process.Pid), killed
}

// idlers starts n waiting processes in the cgroup with an oom_score_adj, and returns their PIDs.
func (g controlGroup) idlers(t *testing.T, n, adj int) (pids []uint32) {
	t.Helper()
	for range n {
		cmd := exec.Command("sh", "-c", `echo "$1" >/proc/self/oom_score_adj && echo ready && read nothing`, "sh", strconv.Itoa(adj))
		stdin, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { stdin.Close() })
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		g.start(t, cmd)
		if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "ready\n" {
			t.Fatalf("%v says %q, %v", cmd.Args, line, err)
		}
		pids = append(pids, uint32(cmd.Process.Pid))
	}
	return pids
}

// dead returns which of the processes, children of this one, are dead.
func dead(t *testing.T, pids []uint32) (gone []uint32) {
	t.Helper()
	for _, pid := range pids {
		state, err := inject.Task{PID: int(pid), TID: int(pid)}.State()
		if err != nil {
			t.Fatal(err)
		}
		if state == 'Z' {
			gone = append(gone, pid)
		}
	}
	return gone
}

// protect makes processes the last OOM victims, like those of system-node-critical pods, until the
// end of the test.
func protect(t *testing.T, pids ...int) {
	t.Helper()
	for _, pid := range pids {
		setFile(t, fmt.Sprintf("/proc/%d/oom_score_adj", pid), "-997")
	}
}

// fillMemory allocates unreclaimable memory until only leave MiB are available. It returns how many
// MiB are left, and a function that frees the memory again.
func fillMemory(t *testing.T, leave int) (left int, free func()) {
	t.Helper()
	const chunk = 8 // MiB
	dir := t.TempDir()
	if err := unix.Mount("filler", dir, "tmpfs", 0, "size=100%"); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(dir, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	free = func() {
		f.Close()
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	}
	for size := int64(0); ; size += chunk << 20 {
		kib, err := numberIn("/proc/meminfo", "MemAvailable:")
		if err != nil {
			t.Fatal(err)
		}
		if left = kib / 1024; left <= leave+chunk {
			return left, free
		}
		err = unix.EINTR
		for errors.Is(err, unix.EINTR) { // interrupted by the runtime's own signals
			err = unix.Fallocate(int(f.Fd()), 0, size, chunk<<20)
		}
		if err != nil {
			free()
			t.Fatalf("fill memory, %d MiB left: %v", left, err)
		}
	}
}

// dying starts a process in the cgroup that holds mib MiB of memory and hangs in a write to an
// existing file of a frozen filesystem, and kills it: it stays until the thaw. It is the preferred
// OOM victim. (Kernels before 6.12 hang in an open that might create the file, and the process
// would hold no memory at that point.)
func (g controlGroup) dying(t *testing.T, mib int, file string) {
	t.Helper()
	const script = `echo 1000 >/proc/self/oom_score_adj && exec dd if=/dev/zero of="$2" conv=notrunc,nocreat count=1 bs="$1"M`
	cmd := exec.Command("sh", "-c", script, "sh", strconv.Itoa(mib), file)
	g.start(t, cmd)
	task := inject.Task{PID: cmd.Process.Pid, TID: cmd.Process.Pid, Comm: "dd"}
	hangs := eventually(t, task.String()+" hangs", 30*time.Second, func() bool {
		state, err := task.State()
		if err != nil {
			t.Fatal(err)
		}
		if state == 'Z' {
			t.Fatalf("%s has ended: its write did not hang", task)
		}
		anon, err := numberIn(filepath.Join("/proc", strconv.Itoa(task.PID), "status"), "RssAnon:")
		return err == nil && anon >= (mib-1)<<10 && state == 'D' // the kernel's number is off by some pages
	})
	if !hangs {
		proc := "/proc/" + strconv.Itoa(task.PID)
		show(t, proc+"/status", proc+"/stack", g.dir+"/memory.events", g.dir+"/memory.current")
		t.FailNow()
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
}

// show logs files of the kernel that may explain a test failure.
func show(t *testing.T, paths ...string) {
	t.Helper()
	for _, path := range paths {
		data, err := os.ReadFile(path)
		t.Logf("%s: %s (%v)", path, data, err)
	}
}
