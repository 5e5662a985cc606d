package artifact

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/kernosis/kernosis/diagnose/operation"
)

const (
	// DefaultBudget is enough for some dozen captures and profiles, and any node can spare it.
	DefaultBudget = 512 << 20
	// maxSize bounds the bytes of one artifact, so that several fit into the budget.
	maxSize = 64 << 20
	// maxArtifacts bounds the artifacts of one diagnosis, because its status lists them.
	maxArtifacts = 64
)

// Config configures a [Store].
type Config struct {
	// Dir is the store's folder. It is created if missing; its parent must exist.
	Dir string
	// Storage is the folder for operations' own folders. It is created if missing. If empty,
	// operations can't have folders.
	Storage string
	// Budget bounds the bytes of all artifacts; 0: DefaultBudget.
	Budget int64
	// Open reports whether a diagnosis has not ended, even if it does not run now: its artifacts are
	// evicted only if there are no others. It is called with locks held, and must not call the Store.
	// If Open is nil, a diagnosis that does not run counts as ended.
	Open func(id string) bool
}

// Store stores the artifacts of a node. Several goroutines may use it at once, but only one
// process. [Open] creates one.
type Store struct {
	cfg     Config
	maxSize int64 // of one artifact
	log     *slog.Logger
	root    *os.Root

	storage storage

	// disk is locked while the store's content and its files are changed, which may last as long as
	// the disk hangs. Of the files below Storage, only the removal, which is bounded, takes place
	// under the lock.
	disk sync.Mutex
	// mu is locked after disk, and never while waiting for the disk. Changing diagnoses and stats
	// requires both locks, reading them one.
	mu        sync.Mutex
	diagnoses map[string]*diagnosis
	stats     Stats

	// left has the diagnoses whose folders could not be read or removed completely: their index
	// stays. Guarded by disk.
	left map[string]*diagnosis
}

// diagnosis has the artifacts of one diagnosis.
type diagnosis struct {
	artifacts map[string]Artifact
	folders   []string  // operations' folders in which it has files
	last      time.Time // when its last artifact was closed
	running   bool
}

// Artifact is a complete artifact.
type Artifact struct {
	Name   string    `json:"name"`
	Size   int64     `json:"size"`   // bytes
	SHA256 string    `json:"sha256"` // 64 hexadecimal digits
	Time   time.Time `json:"time"`   // when it was closed
	// Truncated: it was cut because it did not fit.
	Truncated bool `json:"truncated,omitempty"`
	// Folder is the operation's own folder; the file is in the diagnosis' subfolder of it. Empty:
	// the file is in the store's folder.
	Folder string `json:"folder,omitempty"`
}

// Path returns the path of the file, for a diagnosis of the store in dir.
func (a *Artifact) Path(dir, id string) string {
	return filepath.Join(cmp.Or(a.Folder, dir), id, a.Name)
}

// Stats are the size of a store, and counters since it was opened.
type Stats struct {
	Bytes int64 // on disk, including files being written

	Evicted   uint64 // artifacts evicted to make room
	Truncated uint64 // artifacts cut because they did not fit
	Refused   uint64 // artifacts that could not be created
	Discarded uint64 // artifacts not closed when their diagnosis ended
	Partial   uint64 // incomplete files of a killed agent, removed by Open
}

// Open opens the store, removes incomplete files of a killed agent, and evicts artifacts until the
// store is within its budget.
func Open(cfg Config, log *slog.Logger) (*Store, error) {
	cfg.Budget = cmp.Or(cfg.Budget, DefaultBudget)
	if cfg.Budget < 0 {
		return nil, fmt.Errorf("artifacts: a negative budget: %d", cfg.Budget)
	}
	if cfg.Open == nil {
		cfg.Open = func(string) bool { return false }
	}
	if err := os.Mkdir(cfg.Dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("artifacts: %w", err)
	}
	root, err := os.OpenRoot(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("artifacts: %w", err)
	}
	s := &Store{cfg: cfg, maxSize: maxSize, log: log, root: root, diagnoses: map[string]*diagnosis{}, left: map[string]*diagnosis{}}
	s.storage.removing = map[string]int{}
	s.openStorage()
	if err := errors.Join(root.Chmod(".", 0o700), s.load()); err != nil {
		return nil, errors.Join(fmt.Errorf("artifacts: %w", err), s.Close())
	}
	s.disk.Lock()
	defer s.disk.Unlock()
	for s.stats.Bytes > s.cfg.Budget && s.evict() {
	}
	return s, nil
}

// openStorage opens the folder for operations' folders. If that fails, the store works without it.
func (s *Store) openStorage() {
	if s.storage.err = errors.New("this node has no folder for results of operations"); s.cfg.Storage == "" {
		return
	}
	dir, err := filepath.Abs(s.cfg.Storage)
	if err != nil {
		s.storage.err = err
	} else {
		s.cfg.Storage, s.storage.dir = dir, dir
		err = s.storage.open(s.cfg.Dir)
	}
	if err != nil {
		s.log.Warn("operations can't have their own folders", "dir", s.cfg.Storage, "error", err)
	}
}

// Close closes the store's folders. Artifacts stay.
func (s *Store) Close() error {
	return errors.Join(s.root.Close(), s.storage.close())
}

// change calls f, which changes fields that readers use. The disk lock is held.
func (s *Store) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// Stats returns the current figures. It does not wait for the disk.
func (s *Store) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}

// reserve reserves n bytes for a file, or fewer if there is no room. It evicts artifacts to make
// room.
func (s *Store) reserve(f *file, n int64) int64 {
	s.disk.Lock()
	defer s.disk.Unlock()
	if f.closed() {
		return 0
	}
	for s.room() < n && s.evict() {
	}
	n = max(0, min(n, s.room()))
	s.change(func() { s.stats.Bytes += n })
	f.held += n
	return n
}

// release returns n reserved bytes. Those of a discarded file have been returned already.
func (s *Store) release(f *file, n int64) {
	s.disk.Lock()
	defer s.disk.Unlock()
	if !f.closed() {
		s.change(func() { s.stats.Bytes -= n })
		f.held -= n
	}
}

// room returns how many bytes are left in the budget.
func (s *Store) room() int64 { return s.cfg.Budget - s.stats.Bytes }

// evict removes the artifacts of one diagnosis: of the ended ones, that whose last artifact is the
// oldest; if none has ended, the same of those that do not run. It returns false if there is nothing
// to evict.
func (s *Store) evict() bool {
	oldest, open := "", false
	for id, d := range s.diagnoses {
		if d.running {
			continue
		}
		isOpen, o := s.cfg.Open(id), s.diagnoses[oldest]
		if o == nil || open && !isOpen || open == isOpen && (d.last.Before(o.last) || d.last.Equal(o.last) && id < oldest) {
			oldest, open = id, isOpen
		}
	}
	d := s.diagnoses[oldest]
	if d == nil {
		return false
	}
	n, size := len(d.artifacts), d.size()
	if err := s.remove(oldest); err != nil {
		// They no longer count towards the budget until the next Open finds them.
		s.log.Warn("can't remove the artifacts of a diagnosis", "diagnosis", oldest, "error", err)
	}
	s.change(func() { s.stats.Evicted += uint64(n) })
	s.log.Info("evicted old artifacts to make room", "diagnosis", oldest, "artifacts", n, "bytes", size)
	return true
}

func (d *diagnosis) size() int64 {
	sum := int64(0)
	for _, a := range d.artifacts {
		sum += a.Size
	}
	return sum
}

// remove removes the folder of a diagnosis. The disk's lock is held.
func (s *Store) remove(id string) error {
	d := s.diagnoses[id]
	s.change(func() {
		delete(s.diagnoses, id)
		s.stats.Bytes -= d.size()
	})
	delete(s.left, id)
	err := s.removeFolders(id, d.folders)
	if err != nil {
		s.left[id] = &diagnosis{artifacts: map[string]Artifact{}, folders: d.folders}
	}
	return err
}

// removeFolders removes the folders of a diagnosis. If one can't be removed, or not yet, or is not
// this store's, the index stays, because it names that folder: the next Open removes the rest.
func (s *Store) removeFolders(id string, folders []string) error {
	var errs []error
	for _, folder := range folders {
		at, err := s.placeOf(id, folder)
		if err == nil {
			err = at.remove(id, func() error { return at.root.RemoveAll(at.dir) })
		}
		errs = append(errs, err)
	}
	failed := errors.Join(errs...)
	if failed == nil {
		return s.root.RemoveAll(id)
	}
	entries, err := fs.ReadDir(s.root.FS(), id)
	for _, e := range entries {
		if e.Name() != indexFile {
			err = errors.Join(err, s.root.RemoveAll(id+"/"+e.Name()))
		}
	}
	return errors.Join(failed, err)
}

// noRoom returns an [operation.ErrArtifactBudget] with a reason.
func noRoom(why string) error { return fmt.Errorf("%w: %s", operation.ErrArtifactBudget, why) }
