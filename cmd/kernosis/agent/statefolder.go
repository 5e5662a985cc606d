package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/kernosis/kernosis/bpf"
	"github.com/kernosis/kernosis/cmd/kernosis/output"
	"github.com/kernosis/kernosis/collector/bounded"
	"github.com/kernosis/kernosis/collector/selfcheck"
	"github.com/kernosis/kernosis/reporter/journal"
)

func (p *parts) openState() error {
	p.stateDir = p.cfg.StateDir
	lacking, release, err := p.cfg.openState()
	if err != nil {
		return output.Failed(err)
	}
	p.noState = lacking
	p.onClose(release)
	p.cfg.rememberServices(p.log)
	return nil
}

// maxVolatileJournal bounds the journal, in MiB, in a temporary folder, which may be in memory.
const maxVolatileJournal = 8

// StateWithin is how long the state folder's disk may take at the start.
const StateWithin = 10 * time.Second

// openState makes sure that there is a state folder. If the configured folder can't be written, or
// its disk does not answer, the agent uses a temporary one, so that it still reports what it
// detects. The temporary folder starts with a copy of the configured one if that is readable.
// lacking says why the configured folder is not used. Call release at the end.
func (c *Config) openState() (lacking error, release func() error, err error) { //nolint:revive // lacking is a fact, not the error of this
	release = func() error { return nil }
	// One call for each of the three folders, as all may be on one hanging disk.
	trials := bounded.Calls{Max: 3}
	dir := c.StateDir
	claimed, lacking := bounded.Do(&trials, StateWithin, func() (func() error, error) { return claim(dir) })
	if lacking == nil {
		return nil, claimed, nil
	}
	hangs := errors.Is(lacking, bounded.ErrLate)
	if !hangs && !selfcheck.Unwritable(lacking) {
		return nil, release, fmt.Errorf("state directory: %w", lacking)
	}
	errs := []error{fmt.Errorf("state directory: %w", lacking)}
	for _, parent := range []string{os.TempDir(), "/dev/shm"} {
		dir, err := bounded.Do(&trials, StateWithin, func() (string, error) { return os.MkdirTemp(parent, "kernosis-state-") })
		if err != nil {
			errs = append(errs, err)
			continue
		}
		journalMiB := min(c.JournalMiB, maxVolatileJournal)
		state := filepath.Join(dir, "new")
		if !hangs {
			c.Mutes = c.MutesPath() // mutes are only read, so from the configured folder
			saved, into := c.StateDir, filepath.Join(dir, "saved")
			// Everything or nothing, because the files depend on each other.
			if err := bounded.Err(&trials, StateWithin, func() error { return copyState(saved, into, journalMiB<<20) }); err != nil {
				lacking = errors.Join(lacking, err)
			} else {
				state = into
			}
		}
		if err := os.MkdirAll(state, 0o700); err != nil {
			errs = append(errs, err, os.RemoveAll(dir))
			continue
		}
		c.StateDir, c.JournalMiB = state, journalMiB
		return lacking, func() error { return os.RemoveAll(dir) }, nil
	}
	return nil, release, errors.Join(errs...)
}

// copyState copies a state folder: everything but the folder of Diagnoses, and only the newest
// journalBytes of the journal. A missing folder counts as empty.
func copyState(from, to string, journalBytes int64) error {
	err := os.MkdirAll(to, 0o700)
	if err != nil {
		return err
	}
	err = filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		name, relErr := filepath.Rel(from, path)
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
			return nil
		case err != nil || relErr != nil:
			return errors.Join(err, relErr)
		case name == runsFolder:
			return fs.SkipDir
		case name == JournalDir:
			if err := journal.Copy(path, filepath.Join(to, name), journalBytes); err != nil {
				return err
			}
			return fs.SkipDir
		case entry.IsDir():
			return os.MkdirAll(filepath.Join(to, name), 0o700)
		case !entry.Type().IsRegular():
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, name), text, 0o600)
	})
	if err != nil {
		return fmt.Errorf("copy saved state: %w", err)
	}
	return nil
}

// claim makes sure that a folder can be written, and locks it against other agents until release. It
// locks last, because a folder that can't be written is not used and needs no lock.
func claim(dir string) (release func() error, err error) {
	if err := writable(dir); err != nil {
		return nil, err
	}
	lock, err := bpf.LockFolder(dir)
	switch {
	case errors.Is(err, bpf.ErrBusy):
		return nil, err
	case err != nil:
		return func() error { return nil }, nil //nolint:nilerr // its filesystem has no locks
	}
	return lock.Close, nil
}

// stateRoom is the required free space, in bytes, because state files are replaced as a whole.
const stateRoom = 64 << 10

// writable creates a folder if it is missing, and a file in it. It syncs the file to wait for the
// disk: otherwise the page cache accepts the file even if the device hangs or fails.
func writable(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".writable-")
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, stateRoom))
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close(), os.Remove(f.Name()))
}
