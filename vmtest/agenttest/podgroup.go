package agenttest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// PodGroup creates a memory cgroup with the path of a pod's container and a limit in bytes. It
// removes it at the end of the test, and skips the test if it can't create it.
func PodGroup(t testing.TB, uid string, bytes int) string {
	t.Helper()
	root := "/sys/fs/cgroup"
	limit := "memory.max"
	if _, err := os.Stat(filepath.Join(root, "memory", "memory.limit_in_bytes")); err == nil {
		root, limit = filepath.Join(root, "memory"), "memory.limit_in_bytes"
	}
	// The test's own top-level cgroup, so as not to interfere with one of Kubernetes.
	top := filepath.Join(root, fmt.Sprintf("kernosis-why-%d", os.Getpid()))
	mkdir := func(dir string) string {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Skip(err)
		}
		t.Cleanup(func() { os.Remove(dir) })
		return dir
	}
	write := func(path, value string) {
		if err := os.WriteFile(path, []byte(value), 0o644); err != nil {
			t.Skip(err)
		}
	}
	dir := mkdir(top)
	for _, name := range []string{"kubepods", "burstable", "pod" + uid, strings.Repeat("8a", 32)} {
		if limit == "memory.max" {
			write(filepath.Join(dir, "cgroup.subtree_control"), "+memory")
		}
		dir = mkdir(filepath.Join(dir, name))
	}
	write(filepath.Join(dir, limit), strconv.Itoa(bytes))
	return dir
}

// KillIn makes the kernel OOM-kill a process in a cgroup: the process allocates 200 MiB.
func KillIn(t testing.TB, group string) {
	t.Helper()
	// The process joins the cgroup and then exceeds its limit.
	script := `echo $$ >"$1/cgroup.procs" && exec dd if=/dev/zero of=/dev/null bs=200M count=1`
	cmd := exec.CommandContext(t.Context(), "sh", "-c", script, "sh", group)
	if err := cmd.Run(); err == nil || cmd.ProcessState.ExitCode() != -1 {
		t.Fatalf("it was not killed: %v", err)
	}
}
