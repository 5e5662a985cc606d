package disklab

import (
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// NewMappedExt4 is NewExt4 on a device-mapper device over a loop device. suspend blocks the I/O of
// the device until resume is called, or until the end of the test. The filesystem does not notice:
// writes to the page cache still succeed.
func NewMappedExt4(tb testing.TB, size int64) (d *Disk, suspend func() (resume func())) {
	tb.Helper()
	d, keep := newDevice(tb, size, "ext4", "-q", "-F")
	defer keep.Close() // the mapped device keeps the loop device
	if _, err := exec.LookPath("dmsetup"); err != nil {
		tb.Skip("dmsetup is missing")
	}
	_ = exec.Command("modprobe", "-q", "dm_mod").Run() // an error is ignored: it may be built in
	if _, err := os.Stat("/sys/class/misc/device-mapper"); err != nil {
		tb.Skipf("no device mapper here: %v", err)
	}
	name := "kernosis-" + d.Name
	sectors, err := os.ReadFile("/sys/block/" + d.Name + "/size")
	d.must(err)
	dmsetup(tb, "create", "--noudevsync", name, "--table", "0 "+strings.TrimSpace(string(sectors))+" linear "+d.Device+" 0")
	// A process that has just used the device may not have closed it yet.
	tb.Cleanup(func() { dmsetup(tb, "remove", "--noudevsync", "--retry", name) })
	d.guard(`dmsetup resume --noudevsync "$2"; umount -l "$1"; dmsetup remove --noudevsync --deferred "$2"`, d.Dir, name)
	d.mount("/dev/"+dmsetup(tb, "info", "--columns", "--noheadings", "-o", "blkdevname", name), "ext4", "")
	return d, func() (resume func()) {
		tb.Helper()
		dmsetup(tb, "suspend", "--noudevsync", "--noflush", "--nolockfs", name)
		resume = sync.OnceFunc(func() { dmsetup(tb, "resume", "--noudevsync", name) })
		tb.Cleanup(resume)
		return resume
	}
}

func dmsetup(tb testing.TB, args ...string) string {
	tb.Helper()
	out, err := exec.Command("dmsetup", args...).CombinedOutput()
	if err != nil {
		tb.Fatalf("dmsetup %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}
