package worker

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/statefile"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

// ledger stores each taken Diagnosis in a file, so that none is lost if the agent stops or the API
// server is down.
type ledger struct {
	dir string
	// newer has the ids of entries written by a newer version of Kernosis. They are neither
	// overwritten nor removed.
	newer map[string]bool
}

// ledgerVersion changes when older versions must no longer read the format. An entry without a
// version has the first format.
const ledgerVersion = 1

// takenDir is the ledger's folder below the worker's.
const takenDir = "taken"

const ledgerSuffix = ".json"

// Taken reports whether a run of the folder belongs to a worker: then nobody else may remove its
// checkpoint.
func Taken(dir, id string) bool {
	_, err := os.Stat(filepath.Join(dir, takenDir, id+ledgerSuffix))
	return err == nil
}

// ReadTaken returns the Diagnosis, without its status, of a run of the folder that belongs to a
// worker. The error is fs.ErrNotExist for other runs.
func ReadTaken(dir, id string) (*v1alpha1.Diagnosis, error) {
	s, err := readSaved(filepath.Join(dir, takenDir, id+ledgerSuffix), id)
	if err != nil {
		return nil, fmt.Errorf("read diagnosis: %w", err)
	}
	return s.Diagnosis, nil
}

// load reads all entries. Unreadable ones are renamed; those of a newer version stay. Both are
// reported in damaged.
func (l *ledger) load() (all []*saved, damaged []error) {
	l.newer = map[string]bool{}
	entries, err := os.ReadDir(l.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, []error{err}
	}
	for _, f := range entries {
		id, ok := strings.CutSuffix(f.Name(), ledgerSuffix)
		if !ok {
			continue
		}
		path := filepath.Join(l.dir, f.Name())
		s, err := readSaved(path, id)
		if _, newer := errors.AsType[*statefile.NewerError](err); newer {
			l.newer[id] = true
			damaged = append(damaged, fmt.Errorf("%s: %w", path, err))
			continue
		}
		if err != nil {
			damaged = append(damaged, fmt.Errorf("%s: %w", path, err))
			if err := os.Rename(path, path+".damaged"); err != nil {
				damaged = append(damaged, err)
			}
			continue
		}
		all = append(all, s)
	}
	return all, damaged
}

func readSaved(path, id string) (*saved, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var s saved
	if err := statefile.Decode(raw, ledgerVersion, &s); err != nil {
		return nil, err
	}
	if s.ID != id || !s.valid() {
		return nil, errors.New("not a valid entry of the ledger")
	}
	return &s, nil
}

// write replaces an entry atomically: a kill or power failure leaves either the old or the new one.
func (l *ledger) write(id string, raw []byte) error {
	if l.newer[id] {
		return nil
	}
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return err
	}
	return statefile.File{Path: filepath.Join(l.dir, id+ledgerSuffix), Durable: true}.Replace(raw)
}

// remove deletes an entry.
func (l *ledger) remove(id string) error {
	if l.newer[id] {
		return nil
	}
	if err := os.Remove(filepath.Join(l.dir, id+ledgerSuffix)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// identity returns the holder name of a folder's runs: the node and a random ID that is stored in
// the folder. So a restarted agent is the same holder, and another agent of the node is not. If the
// ID can't be stored, identity returns one with the error.
func identity(dir, node string) (string, error) {
	path := filepath.Join(dir, "holder")
	raw, err := os.ReadFile(path)
	id, _, _ := strings.Cut(string(raw), "\n") // newer versions may add lines
	if err == nil && len(id) == 16 && strings.Trim(id, "0123456789abcdef") == "" {
		return node + "/" + id, nil
	}
	var random [8]byte
	_, _ = rand.Read(random[:]) // never fails
	id = hex.EncodeToString(random[:])
	if err := (statefile.File{Path: path}).Replace([]byte(id + "\n")); err != nil {
		return node + "/" + id, fmt.Errorf("keep identity: %w", err)
	}
	return node + "/" + id, nil
}

// LockedError is returned if another process has locked the folder.
type LockedError struct {
	Dir string
	Who string // the name that it gave to Lock; empty: not known
}

func (e *LockedError) Error() string {
	return fmt.Sprintf("%s: in use by another process (%s) that runs diagnoses", e.Dir, e.Who)
}

// Agent is the name that a [Worker] gives when it locks its folder.
const Agent = "agent"

// Lock locks a folder, so that no other process runs diagnoses in it. It creates the folder if
// missing. Later callers get who in a [*LockedError].
func Lock(dir, who string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		name, _ := io.ReadAll(io.LimitReader(f, 64)) // only for the message
		err = &LockedError{Dir: dir, Who: string(name)}
	}
	if err == nil {
		_, err = f.WriteAt([]byte(who), 0)
	}
	if err == nil {
		err = f.Truncate(int64(len(who)))
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { f.Close() }, nil //nolint:errcheck // this releases the lock
}
