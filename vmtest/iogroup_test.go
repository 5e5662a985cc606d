package vmtest

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// joinControlGroup moves this process into its own cgroup until the end of the test, so that I/O is
// visibly charged to it, and returns the cgroup's path.
func joinControlGroup(t *testing.T, path string) string {
	t.Helper()
	root := cgroupRoot
	if bootedV1() {
		root = "/sys/fs/cgroup/blkio"
	}
	dir := filepath.Join(root, path)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	move := func(dir string) {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("0"), 0); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(func() {
		move(root)
		// A process that has been waited for may still be counted for a moment.
		eventually(t, "removal of "+path, 10*time.Second, func() bool { return os.Remove(dir) == nil })
	})
	move(dir)
	return path
}
