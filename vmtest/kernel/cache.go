package kernel

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// lockCache waits until no other process changes the cache, and returns the lock;
// closing it releases it. waiting is called once where there is something to wait
// for.
func lockCache(ctx context.Context, cacheDir string, waiting func()) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(cacheDir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for told := false; ; {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return f, nil
		case errors.Is(err, unix.EINTR):
			continue
		case !errors.Is(err, unix.EWOULDBLOCK):
			return nil, errors.Join(fmt.Errorf("lock %s: %w", f.Name(), err), f.Close())
		}
		if !told {
			told = true
			waiting()
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), f.Close())
		}
	}
}

// sweep removes what killed fetches left of images. The caller holds the lock.
func sweep(cacheDir string) error {
	entries, err := os.ReadDir(imagesDir(cacheDir))
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), unfinished) {
			errs = append(errs, os.RemoveAll(filepath.Join(imagesDir(cacheDir), e.Name())))
		}
	}
	return errors.Join(errs...)
}

// replace puts an unfinished image in the place of kernel name's. Between the two
// renames there is none: a process that is killed right there leaves a kernel
// that has to be fetched again, never a mixed one.
func replace(cacheDir, tmp, name string) error {
	final := filepath.Join(imagesDir(cacheDir), name)
	old := tmp + ".old"
	if err := os.Rename(final, old); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.Rename(tmp, final); err != nil {
		return err
	}
	return os.RemoveAll(old)
}

// checkSpace returns a *SetupError where a folder's filesystem has less than
// need bytes for us.
func checkSpace(dir string, need int64) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return fmt.Errorf("free space of %s: %w", dir, err)
	}
	if free := int64(st.Bavail) * st.Bsize; free < need {
		return noSpace(dir, mib(need-free), nil)
	}
	return nil
}

func noSpace(dir, more string, err error) error {
	return &SetupError{
		What: fmt.Sprintf("the disk of %s is full", dir),
		Do:   fmt.Sprintf("free %s there, or set %s to a folder elsewhere", more, cacheEnv), Err: err,
	}
}

// mib tells a size for a person, rounded up.
func mib(bytes int64) string { return fmt.Sprintf("%d MiB", (bytes+1<<20-1)>>20) }
