package netlab

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/vmtest/testenv"
)

// HoldRTNL makes the kernel hold rtnl_lock, which all namespaces share: deleting bridges in one
// request takes it once, for tens of milliseconds per bridge. HoldRTNL returns when the kernel has
// begun. The returned function reports whether the deletion is still running. Without the program
// ip the test is skipped.
func (n *Net) HoldRTNL(bridges int) (held func() bool) {
	n.t.Helper()
	ip, err := exec.LookPath("ip")
	if err != nil {
		n.t.Skip("ip is missing")
	}
	var batch strings.Builder
	for i := range bridges {
		fmt.Fprintf(&batch, "link add b%d group 42 type bridge\n", i)
	}
	file := filepath.Join(n.t.TempDir(), "batch")
	if err := os.WriteFile(file, []byte(batch.String()), 0o600); err != nil {
		n.t.Fatal(err)
	}
	n.Command(ip, "-batch", file)
	var remove *exec.Cmd
	n.In(func() error {
		remove = exec.CommandContext(n.t.Context(), ip, "link", "del", "group", "42")
		return remove.Start()
	})
	var failed error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		failed = remove.Wait()
	}()
	held = func() bool {
		select {
		case <-ended:
			if failed != nil {
				n.t.Error(failed)
			}
			return false
		default:
			return true
		}
	}
	// The sendmsg of ip is the request that deletes the bridges.
	asks := strconv.Itoa(unix.SYS_SENDMSG) + " "
	call := fmt.Sprintf("/proc/%d/syscall", remove.Process.Pid)
	testenv.Until(n.t, "the kernel deletes bridges", 10*time.Second, func() bool {
		current, err := os.ReadFile(call)
		return err == nil && strings.HasPrefix(string(current), asks) || !held()
	})
	return held
}
