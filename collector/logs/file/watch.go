package file

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

// watch reports changes in the folders of a file. Without inotify (no instances left, a network
// file system) it reports nothing, and the reader depends on polling.
type watch struct {
	w      *fsnotify.Watcher // nil: inotify is not available
	events <-chan fsnotify.Event
	errors <-chan error
	log    *slog.Logger
	path   string // as configured
	dirs   []string
	stem   string // common prefix of the relevant names in these folders
}

func newWatch(path string, log *slog.Logger) *watch {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		log.Warn("changes to a log file are detected late", "path", path, "error", err)
		return &watch{log: log, path: path}
	}
	return &watch{w: w, events: w.Events, errors: w.Errors, log: log, path: path}
}

// follow watches the folders of these files. It reports whether it added a folder.
func (w *watch) follow(names []string) (more bool) {
	if w.w == nil {
		return false
	}
	var dirs []string
	for i, name := range names {
		dir, base := filepath.Split(name)
		base = strings.TrimSuffix(base, filepath.Ext(base))
		if i == 0 {
			w.stem = base
		}
		w.stem = common(w.stem, base)
		if dir = filepath.Clean(dir); !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	for _, dir := range w.dirs {
		if !slices.Contains(dirs, dir) {
			// The folder may be gone, and its watch with it.
			_ = w.w.Remove(dir)
		}
	}
	watched := dirs[:0]
	for _, dir := range dirs {
		if !slices.Contains(w.dirs, dir) {
			if err := w.w.Add(dir); err != nil {
				w.log.Debug("can't watch a log file's folder", "path", w.path, "error", err)
				continue
			}
			more = true
		}
		watched = append(watched, dir)
	}
	w.dirs = watched
	return more
}

// again adds all watches again, in case a folder was replaced.
func (w *watch) again() {
	for _, dir := range w.dirs {
		if err := w.w.Add(dir); err != nil {
			w.dirs = nil // follow retries
			return
		}
	}
}

// common returns the common prefix of a and b.
func common(a, b string) string {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return a[:i]
		}
	}
	return a[:min(len(a), len(b))]
}

// wait returns true when there may be something to read or timeUp receives, and false when ctx ends.
func (w *watch) wait(ctx context.Context, timeUp <-chan time.Time) bool {
	for {
		select {
		case <-ctx.Done():
			return false
		case <-timeUp:
			w.again()
			return true
		case e, ok := <-w.events:
			if ok && !strings.HasPrefix(filepath.Base(e.Name), w.stem) {
				continue // other files of /var/log are written all the time
			}
			w.drain()
			return true
		case err := <-w.errors:
			// The event queue overflowed: anything may have happened.
			w.log.Debug("missed changes to a log file", "path", w.path, "error", err)
			return true
		}
	}
}

// drain takes the waiting events: one look is enough for all of them.
func (w *watch) drain() {
	for {
		select {
		case _, ok := <-w.events:
			if !ok {
				return
			}
		default:
			return
		}
	}
}

func (w *watch) close() {
	if w.w != nil {
		_ = w.w.Close()
	}
}
