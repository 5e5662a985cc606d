package vmtest

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// nullDisk is a null_blk device with its own size and settings, removed at the end of the test.
// Sectors fail after a call of [nullDisk.spoil].
type nullDisk struct {
	blockDevice
	dir string // its folder in configfs
}

func newNullDisk(t *testing.T, name string, sizeMiB int, settings ...string) nullDisk {
	t.Helper()
	module(t, "CONFIG_BLK_DEV_NULL_BLK", "null_blk", "nr_devices=0")
	d := nullDisk{dir: configFolder(t, "nullb/kn-"+name)}
	for _, s := range append(settings, fmt.Sprintf("size=%d", sizeMiB), "power=1") {
		attr, value, _ := strings.Cut(s, "=")
		d.set(t, attr, value)
	}
	index := "nullb" + attribute(filepath.Join(d.dir, "index"))
	d.blockDevice = findDevice(t, "null_blk device "+name, func(dir string) bool {
		// Named after its directory since v6.4, after its index before.
		return filepath.Base(dir) == filepath.Base(d.dir) || filepath.Base(dir) == index
	})
	return d
}

// configFolder creates a folder of configfs and removes it at the end of the test.
func configFolder(t *testing.T, path string) string {
	t.Helper()
	needConfig(t, "CONFIG_CONFIGFS_FS")
	const configfs = "/sys/kernel/config"
	if err := unix.Mount("configfs", configfs, "configfs", 0, ""); err != nil && err != unix.EBUSY {
		t.Fatal(err)
	}
	path = filepath.Join(configfs, path)
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	atEnd(t, func() error { return os.Remove(path) })
	return path
}

func (d nullDisk) set(t *testing.T, attr, value string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(d.dir, attr), []byte(value), 0); err != nil {
		t.Fatalf("null_blk %s=%s: %v", attr, value, err)
	}
}

// spoil makes all I/O of a range of sectors fail.
func (d nullDisk) spoil(t *testing.T, first, n uint64) {
	t.Helper()
	d.set(t, "badblocks", fmt.Sprintf("+%d-%d", first, first+n-1))
}

// fullZram creates a compressed RAM disk whose memory is used up, and removes it at the end of the
// test. It returns a requester whose writes to new blocks fail, or nil if the kernel has no
// compressor for zram.
func fullZram(t *testing.T) (d blockDevice, r *requester) {
	t.Helper()
	module(t, "CONFIG_ZRAM", "zram")
	const control = "/sys/class/zram-control/"
	n := attribute(control + "hot_add")
	dir := "/sys/block/zram" + n
	t.Cleanup(func() {
		writeAttribute(t, dir+"/reset", "1")
		writeAttribute(t, control+"hot_remove", n)
	})
	if err := os.WriteFile(dir+"/disksize", []byte("16M"), 0); errors.Is(err, unix.EINVAL) {
		return d, nil
	} else if err != nil {
		t.Fatal(err)
	}
	writeAttribute(t, dir+"/mem_limit", "4K")
	d = findDevice(t, "zram"+n, func(found string) bool { return filepath.Base(found) == "zram"+n })
	r = d.open(unix.O_DIRECT)
	if _, err := rand.Read(r.buf); err != nil { // random, because compressible data would fit
		t.Fatal(err)
	}
	for page := uint64(0); r.request("write", page*blockSize/sectorSize, blockSize) == nil; page++ {
	}
	return d, r
}

// scsi_debug's medium error: reads of these sectors fail.
const (
	mediumErrorSector  = 0x1234
	mediumErrorSectors = 10
)

// fakeDisk returns the i-th of scsi_debug's disks, of which there is one per provoked fault.
func fakeDisk(t *testing.T, i int) blockDevice {
	t.Helper()
	module(t, "CONFIG_BLK_DEV_SD", "sd_mod")
	module(t, "CONFIG_SCSI_DEBUG", "scsi_debug", "opts=2", fmt.Sprintf("num_tgts=%d", faults), "max_luns=1", "dev_size_mb=8")
	target := i
	if i >= 7 {
		target++ // 7 is the host's own ID
	}
	return findDevice(t, "disk of scsi_debug", func(dir string) bool {
		// "0:0:1:0": host, channel, target, unit
		address, err := os.Readlink(filepath.Join(dir, "device"))
		if err != nil || attribute(filepath.Join(dir, "device/model")) != "scsi_debug" {
			return false
		}
		parts := strings.Split(filepath.Base(address), ":")
		return len(parts) == 4 && parts[2] == strconv.Itoa(target)
	})
}

// blkdebugDisk returns QEMU's disk whose reads, or writes, fail as configured in vm.yaml.
func blkdebugDisk(t *testing.T, op string) blockDevice {
	t.Helper()
	module(t, "CONFIG_VIRTIO_PCI", "virtio_pci")
	module(t, "CONFIG_VIRTIO_BLK", "virtio_blk")
	return findDevice(t, "virtio disk", func(dir string) bool {
		return attribute(filepath.Join(dir, "serial")) == "blkdebug-"+op
	})
}
