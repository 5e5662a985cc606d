package inject

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// fiBmap is FIBMAP of include/uapi/linux/fs.h: block of a file to block of its
// device.
const fiBmap = 1

// deviceBlocks returns the numbers of a file's first n blocks on its device.
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

// fillUp punches the data's blocks out of the image and fills the tmpfs, so that it has no free page
// for them.
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
