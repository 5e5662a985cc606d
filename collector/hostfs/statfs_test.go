package hostfs

import (
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

// TestStatfsAtAnonymousDevice: a path that leads to another filesystem is refused, even if the
// wanted one numbers its files itself, as btrfs does.
func TestStatfsAtAnonymousDevice(t *testing.T) {
	mounts, err := OwnMounts()
	if err != nil {
		t.Fatal(err)
	}
	var minor uint32
	for _, m := range mounts {
		if m.Path == "/proc" { // the last one is on top
			minor = m.Minor
		}
	}
	if _, err := StatfsAt("/proc", 0, minor); err != nil {
		t.Errorf("the filesystem itself: %v", err)
	}
	if _, err := StatfsAt("/proc", 0, minor+1); !errors.Is(err, ErrOtherFilesystem) {
		t.Errorf("another filesystem: error %v, want %v", err, ErrOtherFilesystem)
	}
	// What init's root leads to is not in this process's table.
	tree, err := unix.OpenTree(unix.AT_FDCWD, "/proc", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		t.Skipf("no permission to make a mount: %v", err)
	}
	defer unix.Close(tree)
	if _, err := StatfsAt(fmt.Sprintf("/proc/self/fd/%d", tree), 0, minor+1); err != nil {
		t.Errorf("in another mount namespace: %v", err)
	}
}
