package inject

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

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

// loopsOver returns the loop devices whose backing file is the image.
func loopsOver(image string) ([]string, error) {
	paths, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return nil, err
	}
	var names []string
	for _, p := range paths {
		b, err := os.ReadFile(p)
		if err != nil {
			continue // detached meanwhile
		}
		if file := strings.TrimSuffix(string(b), "\n"); file == image || file == image+" (deleted)" {
			names = append(names, strings.Split(p, "/")[3])
		}
	}
	return names, nil
}

// detachLoops detaches every loop device over the image and returns once they are free. It
// finds them by image, because a device number may have been reused.
func detachLoops(image string) error {
	return waitFor(context.Background(), undoLimit, "detach", func() (bool, error) {
		names, err := loopsOver(image)
		if err != nil || len(names) == 0 {
			return err == nil, err
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
