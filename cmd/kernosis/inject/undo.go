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

// undoLimit bounds taking back one step: an unmount waits for writers that have
// just been killed, a cgroup for its last task to be reaped.
const undoLimit = 5 * time.Second

// The kinds of step.
const (
	stepGuard  = "guard"  // the record's guard: nothing to undo, it leaves by itself
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

// undoSteps takes the steps back, last one first, and goes on past errors. What
// is gone already, or never was, is no error.
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
		// Never recursive: what lies below may be a mount that didn't go away.
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

// unmount takes a mount away, at the last resort lazily.
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

// removeCgroup kills what is left in a cgroup of ours and removes it.
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
				_ = unix.Kill(pid, unix.SIGKILL) // else it is gone, or the wait ends with an error
			}
		}
		return false, nil
	})
}
