package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// LockFile waits until no other process holds the lock and returns the locked file, which it
// creates if needed. Closing the file releases the lock. If it has to wait, LockFile calls waiting
// once. It serializes processes that change a shared folder, such as a cache of test programs.
func LockFile(ctx context.Context, path string, waiting func()) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for reported := false; ; {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return f, nil
		case errors.Is(err, unix.EINTR):
			continue
		case !errors.Is(err, unix.EWOULDBLOCK):
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
		}
		if !reported {
			reported = true
			waiting()
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), f.Close())
		}
	}
}
