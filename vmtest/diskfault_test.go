package vmtest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/cmd/kernosis/inject"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/reporter/journal"
	"github.com/kernosis/kernosis/vmtest/agenttest"
)

// deviceFault is a fault of the device itself: requests to the bad sectors, used in turn, fail, and
// requests to the good one succeed.
func deviceFault(d blockDevice, flags int, op string, n int, good uint64, bad ...uint64) *diskFault {
	r, next := d.open(flags), 0
	return &diskFault{
		device: d.name, op: op, bytes: uint32(n), errno: unix.EIO,
		succeed: func() error { return r.request(op, good, n) },
		fail: func() (uint64, error) {
			sector := bad[next%len(bad)]
			next++
			return sector, r.request(op, sector, n)
		},
	}
}

// injected is a loop device that fails under a mounted ext4.
func (l *diskLab) injected(t *testing.T, kind inject.DiskKind) *diskFault {
	t.Helper()
	d := &inject.DiskError{Kind: kind, StateDir: t.TempDir()}
	if err := d.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	atEnd(t, d.Close)
	name, dir := d.Device()
	whole := blockDevice{name: name, t: t}.open(unix.O_DIRECT)
	return &diskFault{
		device: name, op: "write", bytes: blockSize, mount: event.Mount{Path: dir, FSType: "ext4"},
		succeed: func() error { return whole.request("read", 0, blockSize) },
		fail: func() (uint64, error) {
			sector, ioErr, err := d.Fail()
			if err != nil {
				t.Fatal(err)
			}
			return sector, ioErr
		},
	}
}

// awaitMount makes the device fail until the agent reports its mount point: it learns of mounts
// about 200 ms later.
func (l *diskLab) awaitMount(t *testing.T, f *diskFault) {
	t.Helper()
	eventually(t, "the mount point of "+f.device, 30*time.Second, func() bool {
		f.fail()
		f.before++
		entries := l.agent.WaitIn(t, "an error of "+f.device, 30*time.Second, func(entries []journal.Entry) bool {
			return len(f.events(entries)) >= f.before
		})
		reported := f.events(entries)
		return len(reported[len(reported)-1].Device.Mounts) > 0
	})
}

func mediumFault(d blockDevice) *diskFault {
	var bad []uint64
	for i := range uint64(mediumErrorSectors) {
		bad = append(bad, mediumErrorSector+i)
	}
	f := deviceFault(d, unix.O_DIRECT, "read", sectorSize, 0, bad...)
	f.errno = unix.ENODATA
	return f
}

// mappedMedium is a volume over a disk with a medium error: one fault that both report.
func (l *diskLab) mappedMedium(t *testing.T) *diskFault {
	t.Helper()
	lower := fakeDisk(t, 1)
	f := mediumFault(mapLinear(t, "medium", lower, 1, 8<<20).devices[0])
	f.bio, f.below = true, mediumFault(lower)
	f.below.errno = f.errno
	l.awaitBio(t)
	return f
}

// badBlocks is a disk with more bad blocks than faults to provoke.
func badBlocks(t *testing.T, op string, flags int) *diskFault {
	t.Helper()
	const first, perBlock = 8192, blockSize / sectorSize
	d := newNullDisk(t, fmt.Sprintf("%s-%d", op, flags), 16)
	d.spoil(t, first, 2*faults*perBlock)
	var bad []uint64
	for i := range uint64(faults) {
		bad = append(bad, first+i*perBlock)
	}
	return deviceFault(d.blockDevice, flags, op, blockSize, 0, bad...)
}

// errorTarget is a volume whose second half is an error target.
func (l *diskLab) errorTarget(t *testing.T, name, op string) *diskFault {
	t.Helper()
	const half = 1 << 20 / sectorSize
	lower := newNullDisk(t, name+"-lower", 1)
	table := fmt.Sprintf("0 %d linear %s 0,%d %d error", half, lower.path(), half, half)
	f := deviceFault(mapTables(t, name, table).devices[0], unix.O_DIRECT, op, blockSize, 0, half, half+8, half+16)
	f.bio = true
	l.awaitBio(t)
	return f
}

// bioBased is a device without requests that is not the device mapper's: a zram without free memory
// or, if the kernel has no compressor for it, a null_blk in bio mode. No other such device may
// exist.
func (l *diskLab) bioBased(t *testing.T) *diskFault {
	t.Helper()
	f, probe := bioFault(t, "fault"), bioFault(t, "probe")
	eventually(t, "an error of a bio-based device", 30*time.Second, func() bool {
		if _, err := probe.fail(); err == nil {
			t.Fatal("no error of a device without memory")
		}
		return len(probe.events(l.agent.Entries())) > 0
	})
	return f
}

func bioFault(t *testing.T, name string) *diskFault {
	t.Helper()
	const good, bad = 0, 8192
	if zram, r := fullZram(t); r != nil {
		reader := zram.open(unix.O_DIRECT)
		return &diskFault{
			device: zram.name, op: "write", bytes: blockSize, errno: unix.EIO, bio: true,
			succeed: func() error { return reader.request("read", bad, blockSize) },
			fail:    func() (uint64, error) { return bad, r.request("write", bad, blockSize) },
		}
	}
	// Up to v6.9 null_blk had such a mode.
	null := newNullDisk(t, "bio-"+name, 16, "queue_mode=0")
	null.spoil(t, bad, blockSize/sectorSize)
	f := deviceFault(null.blockDevice, unix.O_DIRECT, "write", blockSize, good, bad)
	f.bio = true
	return f
}

// awaitBio waits until the agent detects errors of bio-based devices: it periodically looks for
// such devices, and attaches to their hook if there are any.
func (l *diskLab) awaitBio(t *testing.T) {
	t.Helper()
	probe := mapTables(t, "probe-"+filepath.Base(t.Name()), "0 8 error").devices[0]
	r := probe.open(unix.O_DIRECT)
	eventually(t, "an error of a bio-based device", 30*time.Second, func() bool {
		l.turn.Lock()
		defer l.turn.Unlock()
		if err := r.request("read", 0, blockSize); err == nil {
			t.Fatal("no error of an error target")
		}
		return slices.ContainsFunc(agenttest.Events(l.agent.Entries(), event.DiskIO), func(ev *event.Event) bool {
			return ev.Device.Name == probe.name
		})
	})
}

// blkdebug is a disk of QEMU with one failing sector.
func blkdebug(t *testing.T, op string, bad uint64) *diskFault {
	t.Helper()
	return deviceFault(blkdebugDisk(t, op), unix.O_DIRECT, op, blockSize, 0, bad)
}

// xfsFile is a disk whose bad blocks belong to a file on a mounted XFS.
func (l *diskLab) xfsFile(t *testing.T) *diskFault {
	t.Helper()
	d := newNullDisk(t, "xfs", xfsMiB, "memory_backed=1")
	return l.badFile(t, "xfs", d.blockDevice, d)
}

// badFile is a disk with a mounted filesystem and a file on bad blocks. They are bad on backing, which
// has the same sectors.
func (l *diskLab) badFile(t *testing.T, fsType string, d blockDevice, backing nullDisk) *diskFault {
	t.Helper()
	const blocks = 8
	makeFS(t, fsType, d.path())
	m := mountFS(t, fsType, d.path(), "")
	path := filepath.Join(m.dir, "file")
	if err := os.WriteFile(path, make([]byte, blocks*blockSize), 0o600); err != nil {
		t.Fatal(err)
	}
	r := openRequester(t, path, unix.O_DIRECT)
	if err := r.f.Sync(); err != nil {
		t.Fatal(err)
	}
	var bad []uint64
	for i := range uint32(blocks) {
		sector := deviceSector(t, r.f, i)
		bad = append(bad, sector)
		backing.spoil(t, sector, blockSize/sectorSize)
	}
	next := 0
	return &diskFault{
		device: d.name, op: "read", bytes: blockSize, errno: unix.EIO, mount: event.Mount{Path: m.dir, FSType: fsType},
		succeed: func() error { return os.WriteFile(filepath.Join(m.dir, "other"), []byte("x"), 0o600) },
		fail: func() (uint64, error) {
			i := next % blocks
			next++
			return bad[i], r.request("read", uint64(i)*blockSize/sectorSize, blockSize)
		},
	}
}

// deviceSector returns the position of a file's block on its device.
func deviceSector(t *testing.T, f *os.File, block uint32) uint64 {
	t.Helper()
	const fiBmap = 1 // FIBMAP of include/uapi/linux/fs.h
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), fiBmap, uintptr(unsafe.Pointer(&block))); errno != 0 || block == 0 {
		t.Fatalf("where %s is: block %d: %v", f.Name(), block, errno)
	}
	return uint64(block) * blockSize / sectorSize
}
