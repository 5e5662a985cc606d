package block

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/diagnose/operation/disk"
	"github.com/kernosis/kernosis/vmtest/operationtest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// deadServer mounts a FUSE filesystem without a server until the test ends.
func deadServer(t *testing.T) (dir string) {
	t.Helper()
	operationtest.NeedRoot(t)
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("no FUSE here: %v", err)
	}
	dir = t.TempDir()
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fd)
	if err := unix.Mount("dead", dir, "fuse.kernosis", unix.MS_NODEV|unix.MS_NOSUID, options); err != nil {
		unix.Close(fd)
		t.Fatal(err)
	}
	t.Cleanup(func() {
		unix.Close(fd) // ends all that wait
		testenv.Until(t, "unmounted", 20*time.Second, func() bool { return unix.Unmount(dir, unix.MNT_DETACH) == nil })
	})
	return dir
}

func TestSilentFilesystem(t *testing.T) {
	dir := deadServer(t)
	began := time.Now()
	out, kept := operationtest.Succeed(t, disk.Mounts(operationtest.RealHost()), map[string]string{"limit": "100ms"})
	if took := time.Since(began); took > 10*time.Second || out.Results["silent"] != dir || !strings.Contains(kept.Files["mounts.txt"], "usage unknown: no answer within 100ms") {
		t.Errorf("after %s: %v\n%s", took, out.Results, kept.Files["mounts.txt"])
	}
	// A thread of this process hangs there now.
	testenv.Until(t, "a thread waits for FUSE", 20*time.Second, func() bool {
		out, _ := operationtest.Succeed(t, BlockedStacks(operationtest.RealHost()), map[string]string{"minBlocked": "10ms"})
		return strings.Contains(out.Results["kinds"], hostfs.WaitFUSE+"=")
	})
}
