package loopdisk

import (
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// Mapped is a filesystem on a device-mapper device over a loop device.
type Mapped struct {
	*Disk
	name string // name of the device-mapper device
}

// NewMappedExt4 creates an ext4 filesystem of a size in bytes and mounts it. It skips the test if
// that is not possible.
func NewMappedExt4(tb testing.TB, size int64) *Mapped {
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
	m := &Mapped{Disk: d, name: "kernosis-" + d.Name}
	sectors, err := os.ReadFile("/sys/block/" + d.Name + "/size")
	d.must(err)
	m.dmsetup("create", "--noudevsync", m.name, "--table", "0 "+strings.TrimSpace(string(sectors))+" linear "+d.Device+" 0")
	// A process that has just used the device may not have closed it yet.
	tb.Cleanup(func() { m.dmsetup("remove", "--noudevsync", "--retry", m.name) })
	d.guard(`dmsetup resume --noudevsync "$2"; umount -l "$1"; dmsetup remove --noudevsync --deferred "$2"`, d.Dir, m.name)
	d.mount("/dev/"+m.dmsetup("info", "--columns", "--noheadings", "-o", "blkdevname", m.name), "ext4", "")
	return m
}

// Suspend blocks the I/O of the device until resume is called, or until the end of the test. The
// filesystem does not notice: writes to the page cache still succeed.
func (m *Mapped) Suspend() (resume func()) {
	m.tb.Helper()
	m.dmsetup("suspend", "--noudevsync", "--noflush", "--nolockfs", m.name)
	resume = sync.OnceFunc(func() { m.dmsetup("resume", "--noudevsync", m.name) })
	m.tb.Cleanup(resume)
	return resume
}

func (m *Mapped) dmsetup(args ...string) string {
	m.tb.Helper()
	out, err := exec.Command("dmsetup", args...).CombinedOutput()
	if err != nil {
		m.tb.Fatalf("dmsetup %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}
