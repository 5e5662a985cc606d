package kernel

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

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

// mib formats a size for people, rounded up.
func mib(bytes int64) string { return fmt.Sprintf("%d MiB", (bytes+1<<20-1)>>20) }
