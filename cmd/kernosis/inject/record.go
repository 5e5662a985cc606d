package inject

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// DefaultStateDir holds the records of running injectors and their mounts.
const DefaultStateDir = "/run/kernosis/inject"

// DefaultLimit is the time limit of a fault whose owner set none.
const DefaultLimit = 5 * time.Minute

// record lists everything that a fault has created and that would outlive the process, on disk as
// JSON lines. A step is appended before it is done. So after a crash the record may have steps that
// were never done, but it never lacks one. The owner holds a lock on the file: a record that can be
// locked has lost its owner. (It is a lock, not a process ID, because PID namespaces may share
// records.) Not safe for concurrent use.
type record struct {
	path  string
	dir   string // the fault's own, for images and mount points
	file  *os.File
	steps []step
	guard *child
	done  bool // all is undone
}

// openRecord creates a record <stateDir>/<pid>-<fault>.jsonl and a directory beside it, and
// starts its guard, which undoes everything once this process is dead or limit has passed.
func openRecord(stateDir, fault string, limit time.Duration) (*record, error) {
	if limit <= 0 {
		limit = DefaultLimit
	}
	stateDir, err := filepath.Abs(cmp.Or(stateDir, DefaultStateDir))
	if err == nil {
		err = os.MkdirAll(stateDir, 0o755)
	}
	if err == nil { // paths in mountinfo and sysfs have no symlinks, so ours must not have any either
		stateDir, err = filepath.EvalSymlinks(stateDir)
	}
	if err != nil {
		return nil, fmt.Errorf("open record: %w", err)
	}
	base := filepath.Join(stateDir, strconv.Itoa(os.Getpid())+"-"+fault)
	r := &record{path: base + ".jsonl", dir: base}
	r.file, err = os.OpenFile(r.path, os.O_CREATE|os.O_EXCL|os.O_APPEND|os.O_WRONLY, 0o600)
	if errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("open record: %s of this process is still running (%s)", fault, r.path)
	} else if err != nil {
		return nil, fmt.Errorf("open record: %w", err)
	}
	if err := r.begin(limit); err != nil {
		return nil, errors.Join(err, r.undo())
	}
	return r, nil
}

func (r *record) begin(limit time.Duration) error {
	if err := unix.Flock(int(r.file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fmt.Errorf("lock record %s: %w", r.path, err)
	}
	var err error
	if r.guard, err = startChild("guard", childOptions{detached: true}, r.path, limit.String()); err != nil {
		return err
	}
	if err := r.will(step{Kind: stepGuard, PID: r.guard.pid()}); err != nil {
		return err
	}
	return r.mkdir(r.dir)
}

// will records a step that is about to be done.
func (r *record) will(s step) error {
	if err := json.NewEncoder(r.file).Encode(s); err != nil {
		return fmt.Errorf("record %s %s: %w", s.Kind, s.Path, err)
	}
	r.steps = append(r.steps, s)
	return nil
}

// mkdir makes a directory that undo removes.
func (r *record) mkdir(path string) error {
	if err := r.will(step{Kind: stepDir, Path: path}); err != nil {
		return err
	}
	return os.Mkdir(path, 0o755)
}

// undo undoes every step, the last one first, then removes the record and ends the guard. It
// continues after errors and joins them; after an error the record stays for [Cleanup]. Another
// call undoes the remaining steps.
func (r *record) undo() error {
	if r == nil || r.done {
		return nil
	}
	err := undoSteps(r.steps)
	if err == nil {
		if err = os.Remove(r.path); errors.Is(err, os.ErrNotExist) {
			err = nil // the guard was first
		}
	}
	r.done = err == nil
	_ = r.file.Close() // also releases the lock; the steps have been undone, or the file stays
	if r.guard != nil {
		r.guard.stop()
	}
	return err
}

// readRecord returns the steps of a record file. It ignores a last line that a crash truncated,
// because its step wasn't begun. The error is about other lines that it can't read, whose steps are
// missing.
func readRecord(path string) (steps []step, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var errs []error
	for line := range bytes.Lines(text) {
		var s step
		switch err := json.Unmarshal(line, &s); {
		case !bytes.HasSuffix(line, []byte("\n")) && err != nil: // truncated
		case err != nil || s.Kind == "":
			errs = append(errs, fmt.Errorf("not a step: %.100q", line))
		default:
			steps = append(steps, s)
		}
	}
	return steps, errors.Join(errs...)
}
