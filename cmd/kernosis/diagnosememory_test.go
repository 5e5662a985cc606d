package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// growEnv makes the test binary a process that leaks memory.
const growEnv = "KERNOSIS_TEST_GROW"

// grow allocates 8 MiB a second until its stdin ends, at most 400 MiB.
func grow() {
	ended := make(chan struct{})
	go func() {
		_, _ = os.Stdin.Read(make([]byte, 1))
		close(ended)
	}()
	var kept [][]byte
	for tick := time.NewTicker(50 * time.Millisecond); len(kept) < 1000; {
		select {
		case <-ended:
			return
		case <-tick.C:
		}
		b := make([]byte, 400<<10)
		for i := 0; i < len(b); i += os.Getpagesize() {
			b[i] = 1
		}
		kept = append(kept, b)
	}
	<-ended
}

func TestOOMKillSetOnALeak(t *testing.T) {
	testenv.OnlyInTestAll(t)
	needKernel(t)
	layout, err := operation.HostAt("/", nil).FS.CgroupLayout()
	if err != nil {
		t.Fatal(err)
	}
	mount, file := layout.Controllers["memory"], "memory.limit_in_bytes"
	if mount == "" {
		mount, file = layout.Unified, "memory.max"
		if b, err := os.ReadFile(filepath.Join(mount, "cgroup.subtree_control")); err != nil || !strings.Contains(string(b), "memory") {
			t.Skip("no memory cgroups can be made here")
		}
	}
	group := "/kernosis-diagnose-" + strconv.Itoa(os.Getpid())
	if err := os.Mkdir(mount+group, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		testenv.Until(t, "the cgroup can be removed", 20*time.Second, func() bool { return os.Remove(mount+group) == nil })
	})
	const limit = 600 << 20 // more than grow takes, so nothing is killed
	if err := os.WriteFile(filepath.Join(mount+group, file), []byte(strconv.Itoa(limit)), 0); err != nil {
		t.Fatal(err)
	}
	// The shell moves itself, so that all of the child's memory is charged to the cgroup.
	cmd := exec.CommandContext(t.Context(), "sh", "-c", `echo $$ >"$1" && exec "$2"`, "sh", filepath.Join(mount+group, "cgroup.procs"), os.Args[0])
	cmd.Env = append(os.Environ(), growEnv+"=1", "GOGC=off")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Wait()
	})
	d := diagnosed(t, t.TempDir(), "oom-kill", "cgroup="+group, "limitCgroup="+group, "window=3s")
	found(t, d, "MemoryLeakSuspected", "["+strconv.Itoa(cmd.Process.Pid)+"]", "oom-kill-log cgroup-memory check-memory-leak")
	if len(d.Excluded) != 1 || d.Excluded[0].Operation != "check-node-overcommitted" {
		t.Errorf("%+v", d.Excluded)
	}
}
