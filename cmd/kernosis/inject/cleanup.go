package inject

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// undoLimit bounds the time to undo one step: an unmount waits for writers that have just been
// killed, the removal of a cgroup for its last task to be reaped.
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

// Cleanup removes what dead injectors have left behind, according to their records in
// stateDir ("" for [DefaultStateDir]), and returns those records' names. It does not touch
// records of running injectors. Every [Fault] calls it first.
func Cleanup(stateDir string) (removed []string, err error) {
	paths, err := filepath.Glob(filepath.Join(cmp.Or(stateDir, DefaultStateDir), "*.jsonl"))
	if err != nil {
		return nil, fmt.Errorf("clean up %s: %w", stateDir, err)
	}
	var errs []error
	for _, path := range paths {
		f, err := lockRecord(path)
		if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, os.ErrNotExist) {
			continue // its owner lives, or its guard is at work or done
		} else if err != nil {
			errs = append(errs, fmt.Errorf("clean up %s: %w", path, err))
			continue
		}
		if err := undoRecord(path); err != nil {
			errs = append(errs, fmt.Errorf("clean up %s: %w", path, err))
		} else {
			removed = append(removed, filepath.Base(path))
		}
		_ = f.Close()
	}
	return removed, errors.Join(errs...)
}

// lockRecord takes over a record whose owner is dead. The error is EWOULDBLOCK if the owner lives. It
// refuses a record that another user could have written, because it could make us remove files and
// kill processes.
func lockRecord(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		_ = f.Close()
		return nil, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || int(st.Uid) != os.Geteuid() || st.Mode&0o022 != 0 {
		_ = f.Close()
		return nil, fmt.Errorf("not a regular file that only this user can write (owner %d, mode %o)", st.Uid, st.Mode)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

func undoRecord(path string) error {
	steps, err := readRecord(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err := errors.Join(err, undoSteps(steps)); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// guard waits until the owner of a record ends (its end of stdin closes) or its
// time limit passes, and undoes the steps that are still in the record.
func guard(args []string) error {
	path := args[0]
	limit, _ := time.ParseDuration(args[1]) // as begin has formatted it
	if _, err := setComm("kn-guard"); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // an error is an end as well
		close(ended)
	}()
	overrun := time.NewTimer(limit)
	defer overrun.Stop()
	select {
	case <-overrun.C: // the owner is stuck: undo without the lock it holds
		return undoRecord(path)
	case <-ended:
	}
	// The lock of a killed owner is released a moment after its pipe; an owner
	// that ended cleanly has removed the record.
	var f *os.File
	err := waitFor(context.Background(), undoLimit, "the end of its owner", func() (bool, error) {
		var err error
		f, err = lockRecord(path)
		if errors.Is(err, unix.EWOULDBLOCK) {
			return false, nil
		}
		return err == nil, err
	})
	if errors.Is(err, os.ErrNotExist) {
		return nil
	} else if err != nil {
		return fmt.Errorf("guard %s: %w", path, err)
	}
	defer f.Close()
	return undoRecord(path)
}
