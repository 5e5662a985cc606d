package vmtest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kernosis/kernosis/collector/process"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// Mount points of the hierarchies in a machine of vmrun. The folder of the memory controller exists
// only in a machine booted with cgroup v1, even if the kernel has no such controller for v1.
const (
	cgroupRoot   = "/sys/fs/cgroup"
	memoryV1Root = "/sys/fs/cgroup/memory"
	unifiedRoot  = "/sys/fs/cgroup/unified"
)

// bootedV1 reports whether the machine was booted with cgroup v1.
func bootedV1() bool {
	_, err := os.Stat(memoryV1Root)
	return err == nil
}

// controlGroup is a cgroup of the default hierarchy.
type controlGroup struct {
	dir  string
	path string // from the hierarchy's root, as in events
}

// newControlGroup creates a cgroup with the given files' contents ("memory.max=16M") and removes it
// at the end of the test.
func newControlGroup(t *testing.T, path string, files ...string) controlGroup {
	t.Helper()
	root := cgroupRoot
	if bootedV1() {
		root = unifiedRoot
	}
	g := controlGroup{dir: filepath.Join(root, path), path: path}
	if err := os.Mkdir(g.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// A process that has been waited for may still be counted for a moment.
		eventually(t, "removal of "+path, 10*time.Second, func() bool {
			err := os.Remove(g.dir)
			return err == nil || errors.Is(err, os.ErrNotExist)
		})
	})
	for _, f := range files {
		name, value, _ := strings.Cut(f, "=")
		if err := os.WriteFile(filepath.Join(g.dir, name), []byte(value), 0); err != nil {
			t.Fatal(err)
		}
	}
	return g
}

// start starts the command in the cgroup and kills what is left of it at the end of the test.
func (g controlGroup) start(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := g.tryStart(t, cmd); err != nil {
		t.Fatalf("start %v: %v", cmd.Args, err)
	}
}

// tryStart is start, but returns errors, for example if there is no memory for a fork.
func (g controlGroup) tryStart(t *testing.T, cmd *exec.Cmd) error {
	t.Helper()
	dir, err := os.Open(g.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	if err := process.StartTied(cmd); err != nil {
		return err
	}
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			cmd.Process.Kill()
			cmd.Wait()
		}
	})
	return nil
}

// eventually polls cond until it is true. It reports a test error, without ending the test, if that
// does not happen in time.
func eventually(t *testing.T, what string, within time.Duration, cond func() bool) bool {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	within = testenv.Within(within)
	for end := time.Now().Add(within); !cond(); <-tick.C {
		if time.Now().After(end) {
			t.Errorf("not within %s: %s", within, what)
			return false
		}
	}
	return true
}
