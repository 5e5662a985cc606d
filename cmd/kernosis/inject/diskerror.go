package inject

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// DiskKind is a way for a disk's requests to fail.
type DiskKind string

// The ways a disk's requests fail.
const (
	// DiskWrite: writes fail with EIO.
	DiskWrite DiskKind = "disk-error"
	// DiskRead: reads fail with EIO. Kernels before 6.12 (seen on 5.10 and 6.1)
	// read zeroes there.
	DiskRead DiskKind = "disk-error-read"
	// DiskFull: writes fail with ENOSPC, as those of a full thin pool; older
	// kernels' loop driver makes that EIO.
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

// DiskError makes requests of a block device fail: a loop device with a mounted
// ext4, whose backing file loses the blocks of one file. Only requests to these
// blocks fail, those of the filesystem itself don't. Its fields are set before
// Start. Not safe for concurrent use.
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
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("break a disk: %w", err), d.Close())
		}
	}()
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
	// No journal: whether its writes fail would depend on its position.
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
	err := d.record.undo()
	d.record = nil
	return err
}
