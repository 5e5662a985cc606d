package kernel

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// sweep removes unfinished images of killed fetches. The caller must hold the lock.
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

// replace replaces the image of kernel name by an unfinished one. Between the two renames there is
// no image: if the process is killed then, the kernel must be fetched again, but an image is never
// a mixture.
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

// checkSpace returns a *SetupError if the folder's filesystem has less than need bytes available.
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

func mib(bytes int64) string { return fmt.Sprintf("%d MiB", (bytes+1<<20-1)>>20) }
