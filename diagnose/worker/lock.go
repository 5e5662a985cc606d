package worker

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

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
