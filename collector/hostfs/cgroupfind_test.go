package hostfs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestCgroupFinder creates a cgroup and finds it by its id, then removes it and finds that it is
// gone.
func TestCgroupFinder(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to make a cgroup and for open_by_handle_at")
	}
	c, err := FS{}.OpenCgroupFinder()
	if errors.Is(err, os.ErrNotExist) {
		t.Skip("no cgroup2 mount on this machine")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	dir := filepath.Join(c.mount.Name(), fmt.Sprintf("hostfs-test-%d", os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skipf("cgroup2 is not writable here: %v", err)
	}
	defer os.Remove(dir)
	handle, _, err := unix.NameToHandleAt(unix.AT_FDCWD, dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	id := binary.NativeEndian.Uint64(handle.Bytes())

	got, err := c.Find(id)
	if errors.Is(err, unix.EPERM) {
		t.Skip("no CAP_DAC_READ_SEARCH here")
	}
	if want := "/" + filepath.Base(dir); err != nil || got != want {
		t.Errorf("Find = %q, %v; want %q", got, err, want)
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if got, err := c.Find(id); !errors.Is(err, unix.ESTALE) {
		t.Errorf("Find of a removed cgroup = %q, %v; want ESTALE", got, err)
	}
	if err := errors.Join(c.Close(), c.Close()); err != nil {
		t.Errorf("Close twice: %v", err)
	}
}
