package kubetest

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

const (
	// unfinished is the prefix of folders of incomplete builds.
	unfinished = "unfinished-"

	// keepUnused is how long an unused set is kept: other branches of the checkout may pin another
	// version.
	keepUnused = 30 * 24 * time.Hour
)

// complete reports whether a folder contains all programs of a set.
func complete(dir string, set set) bool {
	for _, p := range set.all {
		st, err := os.Stat(filepath.Join(dir, p.name))
		if err != nil || !st.Mode().IsRegular() || st.Mode()&0o111 == 0 {
			return false
		}
	}
	return true
}

// use reports whether the set exists, and records when it was last used.
func (b *build) use() bool {
	if !complete(b.dir, b.set) {
		return false
	}
	now := time.Now()
	_ = os.Chtimes(b.dir, now, now) // fails if another user has built it
	return true
}

// sweep removes the leftovers of killed builds and sets that are no longer used. The caller must
// hold the lock. Errors are ignored: they only cost space.
func (b *build) sweep(now time.Time) {
	entries, err := os.ReadDir(b.cache)
	if err != nil {
		return
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !e.IsDir() {
			continue
		}
		if strings.HasPrefix(e.Name(), unfinished) || now.Sub(info.ModTime()) > keepUnused {
			_ = os.RemoveAll(filepath.Join(b.cache, e.Name()))
		}
	}
}

// checkSpace returns an error if a filesystem that the build writes to has too little space: the
// compiler's own error comes late and suggests no remedy.
func (b *build) checkSpace(ctx context.Context) error {
	buildCache, err := b.goCommand(ctx, "env", "GOCACHE")
	if err != nil {
		return err
	}
	for _, dir := range []string{buildCache, b.cache, os.TempDir()} {
		if err := space(dir, b.set.space, b.set.String()); err != nil {
			return err
		}
	}
	return nil
}

// space returns an error if a folder has less space than building something needs.
func space(dir string, need uint64, what string) error {
	var st unix.Statfs_t
	err := unix.Statfs(dir, &st)
	if errors.Is(err, unix.ENOENT) && dir != filepath.Dir(dir) {
		return space(filepath.Dir(dir), need, what) // it will be created
	}
	if err != nil {
		return fmt.Errorf("free space of %s: %w", dir, err)
	}
	if free := st.Bavail * uint64(st.Bsize); free < need {
		return fmt.Errorf("building %s takes up to %d MiB in %s, which has %d MiB free", what, need>>20, dir, free>>20)
	}
	return nil
}
