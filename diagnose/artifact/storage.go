package artifact

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/bounded"
)

const (
	// storageWithin bounds a call to the storage folder, and flushWithin that which flushes a file.
	storageWithin = 5 * time.Second
	flushWithin   = time.Minute
	// removeWithin bounds a removal, during which the store's disk lock is held.
	removeWithin = time.Second
)

// storage is the folder [Config.Storage]. Its disk may hang while the store's does not. A call that
// takes too long is abandoned, and others fail at once until it has returned.
type storage struct {
	dir      string
	calls    bounded.Calls
	removals bounded.Calls // apart, because a removal may be slow on a disk that works

	mu       sync.Mutex
	root     *os.Root // nil: not available
	err      error    // why it is not available
	apart    bool     // on another disk than the store: evicting artifacts of others makes no room here
	closed   bool
	removing map[string]int // removals of a diagnosis' folders that have not returned
}

// open opens the folder, which is created if missing. own is the store's folder. If the disk hangs,
// the folder becomes available when the disk responds.
func (s *storage) open(own string) error {
	s.err = fmt.Errorf("%s: %w", s.dir, bounded.ErrLate)
	return bounded.Err(&s.calls, storageWithin, func() error {
		err := os.MkdirAll(s.dir, 0o700)
		var root *os.Root
		if err == nil {
			root, err = os.OpenRoot(s.dir)
		}
		var ours, theirs unix.Stat_t
		apart := unix.Stat(own, &ours) == nil && unix.Stat(s.dir, &theirs) == nil && ours.Dev != theirs.Dev
		s.mu.Lock()
		defer s.mu.Unlock()
		if root != nil && s.closed {
			return root.Close()
		}
		s.root, s.err, s.apart = root, err, apart
		return err
	})
}

func (s *storage) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.root == nil {
		return nil
	}
	return s.root.Close()
}

// available returns the folder, or why there is none.
func (s *storage) available() (*os.Root, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.root == nil {
		return nil, s.err
	}
	return s.root, nil
}

func (s *storage) isApart() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.apart
}

// remove removes a diagnosis' files or folders by calling f.
func (s *storage) remove(id string, f func() error) error {
	s.count(id, 1)
	err := bounded.Err(&s.removals, removeWithin, func() error {
		defer s.count(id, -1)
		return f()
	})
	if errors.Is(err, bounded.ErrRefused) {
		s.count(id, -1)
	}
	return s.named(err)
}

func (s *storage) count(id string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.removing[id] += n; s.removing[id] == 0 {
		delete(s.removing, id)
	}
}

// isRemoving reports whether a removal of the diagnosis' folders was abandoned and may still
// continue.
func (s *storage) isRemoving(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.removing[id] > 0
}

// named adds the folder to an error that lacks it.
func (s *storage) named(err error) error {
	if errors.Is(err, bounded.ErrLate) {
		return fmt.Errorf("%s: %w", s.dir, err)
	}
	return err
}

// place is a folder of a diagnosis, in the store or in an operation's folder.
type place struct {
	root    *os.Root
	dir     string
	storage *storage // nil: in the store
}

func (p place) file(name string) string { return p.dir + "/" + name }

// reach calls f, which must own what it uses: if the place is in the storage folder, reach may
// abandon f, and step then returns an error.
func reach[T any](p place, within time.Duration, f func(step func() error) (T, error)) (T, error) {
	if p.storage == nil {
		return f(func() error { return nil })
	}
	v, err := bounded.DoSteps(&p.storage.calls, within, f)
	return v, p.storage.named(err)
}

// remove calls f, which removes files of a diagnosis from the place. If it is in the storage folder,
// f may be abandoned. The disk lock is held.
func (p place) remove(id string, f func() error) error {
	if p.storage == nil {
		return f()
	}
	return p.storage.remove(id, f)
}

// placeOf returns the place of a diagnosis in folder, which is an [Artifact.Folder].
func (s *Store) placeOf(id, folder string) (place, error) {
	if folder == "" {
		return place{root: s.root, dir: id}, nil
	}
	path, err := filepath.Rel(s.cfg.Storage, folder)
	if err != nil || !filepath.IsLocal(path) {
		return place{}, fmt.Errorf("%s is not below %s", folder, s.cfg.Storage)
	}
	root, err := s.storage.available()
	return place{root: root, dir: filepath.Join(path, id), storage: &s.storage}, err
}
