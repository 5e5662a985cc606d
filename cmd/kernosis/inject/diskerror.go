package inject

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// DiskKind is a way for a disk's requests to fail.
type DiskKind string

// The ways a disk's requests fail.
const (
	// DiskWrite: writes fail with EIO.
	DiskWrite DiskKind = "disk-error"
	// DiskRead: reads fail with EIO. Kernels before 6.12 (seen on 5.10 and 6.1) read zeroes there.
	DiskRead DiskKind = "disk-error-read"
	// DiskFull: writes fail with ENOSPC, as on a full thin pool; the loop driver of older kernels
	// turns that into EIO.
	DiskFull DiskKind = "disk-full"
)

func (k DiskKind) op() string {
	if k == DiskRead {
		return "read"
	}
	return "write"
}

const (
	diskBlock     = 4096
	diskImageSize = 8 << 20
	// diskDataBlocks is the size of the file whose blocks fail.
	diskDataBlocks = 64
)

// DiskError makes requests of a block device fail. The device is a loop device with a mounted ext4;
// its backing file loses the blocks of one file. Only requests to these blocks fail, not those to the
// filesystem's own blocks.
type DiskError struct {
	Kind     DiskKind
	StateDir string
	Limit    time.Duration // removed after this, whatever happens; 0 for DefaultLimit

	record *record
	image  *os.File
	fs     *ext4Mount
	data   *os.File // opened with O_DIRECT: one request per call
	buf    []byte   // aligned, as O_DIRECT wants
	blocks []uint32 // blocks of the device that hold data
	filler string
	next   int
}

// Start mounts the device and removes the blocks of the file.
func (d *DiskError) Start(ctx context.Context) (err error) {
	if d.record, err = openRecord(d.StateDir, string(d.Kind), d.Limit); err != nil {
		return err
	}
	defer func() { ending(&err, "break a disk", d.Close) }()
	lose := d.cutOff
	switch d.Kind {
	case DiskWrite, DiskRead:
		err = d.imageInMemory()
	case DiskFull:
		lose = d.fillUp
		err = d.imageOnTmpfs()
	default:
		err = fmt.Errorf("unknown kind of disk error %q", d.Kind)
	}
	if err != nil {
		return err
	}
	// No journal: its writes would fail or not, depending on its position.
	if d.fs, err = mountExt4(ctx, d.record, d.image, false, ""); err != nil {
		return err
	}
	if err = d.writeData(); err != nil {
		return err
	}
	if err = ctx.Err(); err != nil {
		return err
	}
	return lose()
}

// Device returns the device's name (loop7) and mount point.
func (d *DiskError) Device() (name, dir string) { return d.fs.loop.name, d.fs.dir }

// writeData fills the data file, so that writing to it later changes no block of
// the filesystem itself, and opens it for direct I/O.
func (d *DiskError) writeData() error {
	path := filepath.Join(d.fs.dir, "data")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, diskDataBlocks*diskBlock))
	// syncfs, so that the filesystem's own blocks are written as well.
	if err = errors.Join(err, unix.Syncfs(int(f.Fd())), f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if d.data, err = os.OpenFile(path, os.O_RDWR|unix.O_DIRECT, 0); err != nil {
		return err
	}
	if d.blocks, err = deviceBlocks(d.data, diskDataBlocks); err != nil {
		return err
	}
	d.buf, err = unix.Mmap(-1, 0, diskBlock, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return fmt.Errorf("map a buffer: %w", err)
	}
	return nil
}

// Fail makes one request of one block, which must fail, and returns its sector
// (512 bytes) on the device and the error the caller of read or write gets.
func (d *DiskError) Fail() (sector uint64, ioErr error, err error) {
	index := d.next % len(d.blocks)
	d.next++
	sector = uint64(d.blocks[index]) * (diskBlock / 512)
	if ioErr = d.request(index); ioErr == nil {
		return sector, nil, fmt.Errorf("%s of %s at sector %d did not fail", d.Kind.op(), d.fs.loop.path(), sector)
	}
	return sector, ioErr, nil
}

func (d *DiskError) request(index int) error {
	call := unix.Pwrite
	if d.Kind == DiskRead {
		call = unix.Pread
	}
	_, err := call(int(d.data.Fd()), d.buf, int64(index)*diskBlock)
	return err
}

// Heal restores the blocks and verifies that with a request. For DiskWrite, whose blocks are lost for
// good, it removes the device, as Close does.
func (d *DiskError) Heal(context.Context) error {
	var err error
	switch d.Kind {
	case DiskWrite:
		return d.Close()
	case DiskRead:
		err = d.image.Truncate(diskImageSize)
	case DiskFull:
		err = os.Truncate(d.filler, 0)
	}
	if err == nil {
		err = d.request(0)
	}
	if err != nil {
		return fmt.Errorf("heal %s: %w", d.fs.loop.path(), err)
	}
	return nil
}

// Close unmounts the filesystem and removes everything.
func (d *DiskError) Close() error {
	for _, f := range []*os.File{d.data, d.image} {
		if f != nil {
			_ = f.Close() // its writes fail on purpose
		}
	}
	if d.buf != nil {
		_ = unix.Munmap(d.buf)
		d.buf = nil
	}
	return d.record.undo()
}

// fiBmap is FIBMAP of include/uapi/linux/fs.h: block of a file to block of its device.
const fiBmap = 1

func deviceBlocks(f *os.File, n uint32) ([]uint32, error) {
	var blocks []uint32
	for i := range n {
		block := i
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), fiBmap, uintptr(unsafe.Pointer(&block))); errno != 0 {
			return nil, fmt.Errorf("find block %d of %s: %w", i, f.Name(), errno)
		}
		if block == 0 {
			return nil, fmt.Errorf("find block %d of %s: not on the device", i, f.Name())
		}
		blocks = append(blocks, block)
	}
	return blocks, nil
}

// imageInMemory creates the image as a memfd, the only kind of file that can be sealed.
func (d *DiskError) imageInMemory() error {
	name := "kernosis-inject-" + strconv.Itoa(os.Getpid()) + "-" + string(d.Kind)
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return fmt.Errorf("make image in memory: %w", err)
	}
	d.image = os.NewFile(uintptr(fd), "/memfd:"+name) // its name in sysfs
	return allocate(d.image, diskImageSize)
}

// cutOff truncates the image where the data begins. The blocks after it are free, because data is the
// only file. Reads there fail by themselves. Writes would make the image grow again, so growing is
// sealed: a write gets EPERM, which the block layer turns into EIO. (A full tmpfs, the other way to
// fail writes, returns ENOSPC on new kernels.)
func (d *DiskError) cutOff() error {
	if err := d.image.Truncate(int64(slices.Min(d.blocks)) * diskBlock); err != nil {
		return fmt.Errorf("cut off image: %w", err)
	}
	if d.Kind == DiskRead {
		return nil // can be undone
	}
	if _, err := unix.FcntlInt(d.image.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_GROW); err != nil {
		return fmt.Errorf("seal image: %w", err)
	}
	return nil
}

// imageOnTmpfs creates the image as a file on a tmpfs with little more room.
func (d *DiskError) imageOnTmpfs() error {
	dir := filepath.Join(d.record.dir, "backing")
	if err := d.record.mkdir(dir); err != nil {
		return err
	}
	if err := d.record.will(step{Kind: stepMount, Path: dir}); err != nil {
		return err
	}
	options := fmt.Sprintf("size=%d,mode=0700,huge=never", diskImageSize+1<<20)
	if err := unix.Mount("kernosis-inject", dir, "tmpfs", unix.MS_NODEV|unix.MS_NOSUID|unix.MS_NOEXEC, options); err != nil {
		return fmt.Errorf("mount tmpfs on %s: %w", dir, err)
	}
	d.filler = filepath.Join(dir, "filler")
	var err error
	d.image, err = newImage(d.record, filepath.Join(dir, "image"), diskImageSize)
	return err
}

// fillUp punches the data's blocks out of the image and fills the tmpfs, so that the tmpfs has no
// free page for these blocks.
func (d *DiskError) fillUp() error {
	const punch = unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE
	for _, block := range d.blocks {
		if err := fallocate(d.image, punch, int64(block)*diskBlock, diskBlock); err != nil {
			return fmt.Errorf("punch block %d out of %s: %w", block, d.image.Name(), err)
		}
	}
	if err := d.record.will(step{Kind: stepFile, Path: d.filler}); err != nil {
		return err
	}
	f, err := os.OpenFile(d.filler, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	page := make([]byte, os.Getpagesize())
	for range 2 * diskImageSize / len(page) {
		if _, err := f.Write(page); errors.Is(err, unix.ENOSPC) {
			return nil
		} else if err != nil {
			return fmt.Errorf("fill tmpfs: %w", err)
		}
	}
	return errors.New("fill tmpfs: it takes more than its size")
}
