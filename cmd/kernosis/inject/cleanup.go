package inject

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Cleanup removes what dead injectors have left behind, according to their records in
// stateDir ("" for [DefaultStateDir]), and returns those records' names. It does not touch
// records of running injectors. Every [Fault] calls it first.
func Cleanup(stateDir string) (removed []string, err error) {
	if stateDir == "" {
		stateDir = DefaultStateDir
	}
	paths, err := filepath.Glob(filepath.Join(stateDir, "*.jsonl"))
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

// undoRecord undoes all steps of a record and removes it.
func undoRecord(path string) error {
	steps, err := readRecord(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	if err := undoSteps(steps); err != nil {
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
	if len(args) != 2 {
		return errors.New("usage: guard RECORD LIMIT")
	}
	path := args[0]
	limit, err := time.ParseDuration(args[1])
	if err != nil {
		return fmt.Errorf("guard %s: %w", path, err)
	}
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
	err = waitFor(context.Background(), undoLimit, "the end of its owner", func() (bool, error) {
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
