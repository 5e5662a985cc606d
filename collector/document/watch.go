package document

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// settle is how long a directory must be unchanged before it is read: an editor writes and
	// renames within milliseconds, a ConfigMap is swapped by one rename.
	settle = 250 * time.Millisecond
	// unsettled is the longest wait while a directory changes constantly.
	unsettled = 5 * time.Second
	// lookAgain is how often to check whether a directory that was removed is back.
	lookAgain = time.Second
	// poll is how often a directory that can't be watched is read, and watching it is tried again.
	poll = 10 * time.Second
)

// Watch calls onChange after files in a folder of documents have changed, once for changes in quick
// succession. It also detects the symbolic link swap of a mounted ConfigMap. It calls onChange once
// more when the watch is set up, because the folder may have changed since the caller read it.
// While the folder can't be watched, because it is missing or inotify is used up, Watch logs that
// and calls onChange every 10 s. It blocks until ctx ends and starts no goroutine that outlives it.
// It does not detect changes behind a symbolic link to another directory.
func Watch(ctx context.Context, dir string, log *slog.Logger, onChange func()) {
	logged := ""
	for {
		err := watch(ctx, dir, onChange)
		if err == nil {
			return
		}
		if text := err.Error(); text != logged {
			log.Warn("files are read periodically because their folder can't be watched", "every", poll, "error", err)
			logged = text
		}
		onChange()
		select {
		case <-ctx.Done():
			return
		case <-time.After(poll):
		}
	}
}

// watch watches the folder until ctx ends. It returns an error if it can't set up the watch.
func watch(ctx context.Context, dir string, onChange func()) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch %s: %w", dir, err)
	}
	defer w.Close()
	dir = filepath.Clean(dir)
	if err := w.Add(dir); err != nil {
		return fmt.Errorf("watch %s: %w", dir, err)
	}
	quiet, again := stopped(), stopped()
	defer quiet.Stop()
	defer again.Stop()
	var first time.Time // of the changes that were not reported yet
	onChange()
	for {
		select {
		case <-ctx.Done():
			return nil
		case ev, ok := <-w.Events:
			if !ok {
				return nil
			}
			if ev.Name == dir && ev.Has(fsnotify.Remove|fsnotify.Rename) {
				again.Reset(lookAgain)
				continue
			}
			if first.IsZero() {
				first = time.Now()
			}
			quiet.Reset(max(0, min(settle, unsettled-time.Since(first))))
		case _, ok := <-w.Errors:
			if !ok {
				return nil
			}
			// The queue overflowed: something changed.
			quiet.Reset(settle)
		case <-again.C:
			if w.Add(dir) != nil {
				again.Reset(lookAgain)
				continue
			}
			quiet.Reset(settle)
		case <-quiet.C:
			first = time.Time{}
			onChange()
		}
	}
}

// stopped returns a timer that is not running.
func stopped() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}
