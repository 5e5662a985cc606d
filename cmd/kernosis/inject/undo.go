package inject

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// undoLimit bounds the undoing of one step: an unmount waits for writers that have just been
// killed, a cgroup for its last task to be reaped.
const undoLimit = 5 * time.Second

// The kinds of step.
const (
	stepGuard  = "guard"  // the record's guard: nothing to undo, it exits by itself
	stepDir    = "dir"    // an empty directory
	stepFile   = "file"   // a file
	stepLoop   = "loop"   // the loop devices whose backing file is Path
	stepMount  = "mount"  // a mount point
	stepFreeze = "freeze" // a frozen filesystem, mounted at Path
	stepCgroup = "cgroup" // a cgroup with whatever processes are left in it
)

// step is one thing made outside the process.
type step struct {
	Kind string `json:"kind"`
	Path string `json:"path,omitempty"`
	PID  int    `json:"pid,omitempty"`
}

// undoSteps undoes the steps, last one first, and continues after errors. A step that is
// already undone, or was never done, is not an error.
func undoSteps(steps []step) error {
	var errs []error
	for _, s := range slices.Backward(steps) {
		if err := s.undo(); err != nil {
			errs = append(errs, fmt.Errorf("remove %s %s: %w", s.Kind, s.Path, err))
		}
	}
	return errors.Join(errs...)
}

func (s step) undo() error {
	switch s.Kind {
	case stepGuard:
		return nil
	case stepDir, stepFile:
		// Never recursive: there may be a mount below that could not be unmounted.
		if err := os.Remove(s.Path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return nil
	case stepLoop:
		return detachLoops(s.Path)
	case stepMount:
		return unmount(s.Path)
	case stepFreeze:
		return thaw(s.Path)
	case stepCgroup:
		return removeCgroup(s.Path)
	}
	return fmt.Errorf("unknown kind %q", s.Kind)
}

// unmount unmounts path, as a last resort lazily.
func unmount(path string) error {
	err := waitFor(context.Background(), undoLimit, "unmount", func() (bool, error) {
		err := unix.Unmount(path, unix.UMOUNT_NOFOLLOW)
		if errors.Is(err, unix.EBUSY) {
			return false, nil
		}
		return err == nil, err
	})
	switch {
	case err == nil, errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT): // not a mount point (any more)
		return nil
	}
	if lazy := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); lazy != nil {
		return errors.Join(err, lazy)
	}
	return nil
}

// removeCgroup kills the remaining processes of a cgroup of ours and removes it.
func removeCgroup(path string) error {
	return waitFor(context.Background(), undoLimit, "empty cgroup", func() (bool, error) {
		err := unix.Rmdir(path)
		if err == nil || errors.Is(err, unix.ENOENT) {
			return true, nil
		} else if !errors.Is(err, unix.EBUSY) {
			return false, err
		}
		procs, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return false, err
		}
		for field := range strings.FieldsSeq(string(procs)) {
			if pid, err := strconv.Atoi(field); err == nil && pid > 0 { // 0: of another pid namespace
				_ = unix.Kill(pid, unix.SIGKILL) // if this fails, the process is gone, or the wait ends with an error
			}
		}
		return false, nil
	})
}
