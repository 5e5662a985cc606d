package inject

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ext4Features lists all features, so that the image mounts on kernels older than the mkfs that made
// it (5.10 refuses the newest defaults).
const ext4Features = "none,ext_attr,dir_index,filetype,extent,64bit,flex_bg,sparse_super,large_file,huge_file,dir_nlink,extra_isize"

// ext4Mount is an ext4 filesystem in an image, mounted through a loop device.
type ext4Mount struct {
	loop loopDevice
	dir  string // the mount point
	data string // mount options of ext4
}

// newImage creates an image file of size bytes and adds it to the record.
func newImage(r *record, path string, size int64) (*os.File, error) {
	if err := r.will(step{Kind: stepFile, Path: path}); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("make image: %w", err)
	}
	return f, allocate(f, size)
}

// allocate allocates every block of an image, so that only writes to blocks that a fault removes can
// fail.
func allocate(image *os.File, size int64) error {
	if err := fallocate(image, 0, 0, size); err != nil {
		_ = image.Close()
		return fmt.Errorf("make image %s of %d bytes: %w", image.Name(), size, err)
	}
	return nil
}

// fallocate makes the system call, and repeats it if a signal interrupted it: on a slow machine the
// Go runtime's own signals do.
func fallocate(f *os.File, mode uint32, offset, length int64) error {
	for {
		if err := unix.Fallocate(int(f.Fd()), mode, offset, length); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// mountExt4 creates a filesystem in the image, a loop device over it and a mount point
// <record's directory>/mnt. It adds the latter two to the record.
func mountExt4(ctx context.Context, r *record, image *os.File, journal bool, data string) (*ext4Mount, error) {
	m := &ext4Mount{dir: filepath.Join(r.dir, "mnt"), data: data}
	features := ext4Features
	if journal {
		features += ",has_journal"
	}
	// By descriptor: an image may have no path.
	path := fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), image.Fd())
	err := command(ctx, "mkfs.ext4", "-q", "-F", "-b", "4096", "-m", "0", "-L", "kernosis",
		"-E", "nodiscard,lazy_itable_init=0", "-O", features, path)
	if err != nil {
		return nil, err
	}
	if m.loop, err = attachLoop(r, image); err != nil {
		return nil, err
	}
	defer m.loop.file.Close() // from here on the mount keeps it attached
	if err := r.mkdir(m.dir); err != nil {
		return nil, fmt.Errorf("make mount point: %w", err)
	}
	if err := r.will(step{Kind: stepMount, Path: m.dir}); err != nil {
		return nil, err
	}
	return m, m.mount(0)
}

// mount mounts the filesystem; flags is 0 or MS_REMOUNT.
func (m *ext4Mount) mount(flags uintptr) error {
	flags |= unix.MS_NOATIME | unix.MS_NODEV | unix.MS_NOSUID | unix.MS_NOEXEC
	if err := unix.Mount(m.loop.path(), m.dir, "ext4", flags, m.data); err != nil {
		return fmt.Errorf("mount %s on %s: %w", m.loop.path(), m.dir, err)
	}
	return nil
}

// command runs a program of e2fsprogs. The error has the program's output.
func command(ctx context.Context, name string, args ...string) error {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		return &Refused{Reason: name + " is missing (package e2fsprogs)"}
	} else if err != nil {
		return fmt.Errorf("%s: %w: %.400s", name, err, out)
	}
	return nil
}

// loopDevice is a block device over a file. The open file keeps it attached
// until it is mounted; the kernel detaches it at its last close.
type loopDevice struct {
	name string // loop7
	file *os.File
}

func (l loopDevice) path() string { return "/dev/" + l.name }

// attachLoop attaches a loop device to the open image, sets its backing file name to the
// image's, and adds it to the record.
func attachLoop(r *record, image *os.File) (loopDevice, error) {
	if err := r.will(step{Kind: stepLoop, Path: image.Name()}); err != nil {
		return loopDevice{}, err
	}
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return loopDevice{}, fmt.Errorf("attach loop device: %w", err)
	}
	defer control.Close()
	config := unix.LoopConfig{Fd: uint32(image.Fd())}
	config.Info.Flags = unix.LO_FLAGS_AUTOCLEAR
	copy(config.Info.File_name[:len(config.Info.File_name)-1], image.Name())
	// Another process may take the free device first, so try a few times.
	for range 10 {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return loopDevice{}, fmt.Errorf("find free loop device: %w", err)
		}
		l := loopDevice{name: "loop" + strconv.Itoa(n)}
		if l.file, err = os.OpenFile(l.path(), os.O_RDWR, 0); err != nil {
			return loopDevice{}, fmt.Errorf("attach loop device: %w", err)
		}
		err = unix.IoctlLoopConfigure(int(l.file.Fd()), &config)
		if err == nil {
			return l, nil
		}
		_ = l.file.Close()
		if !errors.Is(err, unix.EBUSY) {
			return loopDevice{}, fmt.Errorf("attach %s: %w", l.path(), err)
		}
	}
	return loopDevice{}, errors.New("attach loop device: all free ones were taken by other processes")
}

func loopsOver(image string) (names []string) {
	paths, _ := filepath.Glob("/sys/block/loop*/loop/backing_file") // the pattern is valid
	for _, p := range paths {
		b, err := os.ReadFile(p)
		if err != nil {
			continue // detached meanwhile
		}
		if file := strings.TrimSuffix(string(b), "\n"); file == image || file == image+" (deleted)" {
			names = append(names, strings.Split(p, "/")[3])
		}
	}
	return names
}

// detachLoops detaches every loop device over the image and returns once they are free. It
// finds them by image, because a device number may have been reused.
func detachLoops(image string) error {
	return waitFor(context.Background(), undoLimit, "detach", func() (bool, error) {
		names := loopsOver(image)
		if len(names) == 0 {
			return true, nil
		}
		for _, name := range names {
			f, err := os.OpenFile("/dev/"+name, os.O_RDONLY, 0)
			if err != nil {
				return false, err
			}
			err = unix.IoctlSetInt(int(f.Fd()), unix.LOOP_CLR_FD, 0)
			_ = f.Close()
			if err != nil && !errors.Is(err, unix.ENXIO) && !errors.Is(err, unix.EBUSY) {
				return false, fmt.Errorf("%s: %w", name, err)
			}
		}
		return false, nil
	})
}
