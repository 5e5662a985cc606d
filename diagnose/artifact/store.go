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

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/diagnose/operation"
)

const (
	// DefaultBudget is what a node can spare for some dozen captures and profiles.
	DefaultBudget = 512 << 20
	// DefaultMaxSize leaves room for several artifacts in the budget.
	DefaultMaxSize = 64 << 20
	// maxArtifacts bounds those of one diagnosis: its status lists them.
	maxArtifacts = 64
)

// Config says where and how much. A zero number is its default.
type Config struct {
	// Dir is the folder; it is made if it isn't there, but not the one that it is in.
	Dir string
	// Storage is the folder that operations may have folders of their own in; it is made if it
	// isn't there. Empty: none has one.
	Storage string
	// Budget bounds the bytes of all artifacts.
	Budget int64
	// MaxSize bounds the bytes of one.
	MaxSize int64
}

// Store is the artifacts of a node. Several goroutines may use it at once, but only one
// process. Make one with [Open].
type Store struct {
	cfg  Config
	log  *slog.Logger
	root *os.Root

	storage    *os.Root // nil: there is none
	storageErr error    // why
	apart      bool     // it is on another disk: there is no more room there without others' artifacts

	// disk is held by whoever changes what the store has, while it changes the files too: that
	// may take as long as the disk hangs.
	disk sync.Mutex
	// mu is taken behind disk, and never held while the disk is waited for. To change diagnoses
	// and stats takes both, to read them one.
	mu        sync.Mutex
	diagnoses map[string]*diagnosis
	stats     Stats
}

// diagnosis is the artifacts of one.
type diagnosis struct {
	artifacts map[string]Artifact
	folders   []string  // of operations, that it has files in
	last      time.Time // when the last one was closed
	running   bool
}

// Artifact is one that is whole.
type Artifact struct {
	Name   string    `json:"name"`
	Size   int64     `json:"size"`   // bytes
	SHA256 string    `json:"sha256"` // 64 hexadecimal digits
	Time   time.Time `json:"time"`   // when it was closed
	// Truncated: there was no room for all of it.
	Truncated bool `json:"truncated,omitempty"`
	// Folder is the operation's own, which has a folder of the diagnosis with the file; empty:
	// it is in the store's.
	Folder string `json:"folder,omitempty"`
}

// Path returns where the file is, of a diagnosis of the store in a folder.
func (a *Artifact) Path(dir, id string) string {
	return filepath.Join(cmp.Or(a.Folder, dir), id, a.Name)
}

// Stats are what the store has, and what it did since it was opened.
type Stats struct {
	Bytes     int64 // on disk, those being written included
	Diagnoses int
	Artifacts int // those that are whole

	Evicted      uint64 // artifacts given up for others
	EvictedBytes uint64
	Truncated    uint64 // artifacts that there was no room for all of
	Refused      uint64 // artifacts that could not be begun
	Discarded    uint64 // artifacts that were not closed when their diagnosis ended
	Partial      uint64 // half written ones of a killed agent, removed when opened
}

// Open opens the store, removes what a killed agent left half written, and makes
// it keep to its budget. A nil log takes nothing.
func Open(cfg Config, log *slog.Logger) (*Store, error) {
	if cfg.Budget == 0 {
		cfg.Budget = DefaultBudget
	}
	if cfg.MaxSize == 0 {
		cfg.MaxSize = DefaultMaxSize
	}
	if cfg.Budget < 0 || cfg.MaxSize < 0 {
		return nil, fmt.Errorf("artifacts: a negative bound: %+v", cfg)
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if err := os.Mkdir(cfg.Dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("artifacts: %w", err)
	}
	root, err := os.OpenRoot(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("artifacts: %w", err)
	}
	s := &Store{cfg: cfg, log: log, root: root, diagnoses: map[string]*diagnosis{}}
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

// openStorage opens the folder of operations' folders. Without it the store is there all
// the same.
func (s *Store) openStorage() {
	if s.storageErr = errors.New("this node has no folder for results of operations"); s.cfg.Storage == "" {
		return
	}
	dir, err := filepath.Abs(s.cfg.Storage)
	if err == nil {
		s.cfg.Storage = dir
		err = os.MkdirAll(dir, 0o700)
	}
	if err == nil {
		s.storage, err = os.OpenRoot(s.cfg.Storage)
	}
	if err != nil {
		s.storageErr = err
		s.log.Warn("operations can't have folders of their own", "error", err)
		return
	}
	var own, theirs unix.Stat_t
	s.apart = unix.Stat(s.cfg.Dir, &own) == nil && unix.Stat(s.cfg.Storage, &theirs) == nil && own.Dev != theirs.Dev
}

// Close gives up what the store holds open. Artifacts stay.
func (s *Store) Close() error {
	err := s.root.Close()
	if s.storage != nil {
		err = errors.Join(err, s.storage.Close())
	}
	return err
}

// change changes what readers see. The disk's lock is held.
func (s *Store) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// Stats returns the figures of now. It does not wait for the disk.
func (s *Store) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stats
	for _, d := range s.diagnoses {
		st.Diagnoses++
		st.Artifacts += len(d.artifacts)
	}
	return st
}

// reserve grants n bytes to a file, or fewer where there is no room. It gives up
// artifacts of others for that, those of the diagnosis that ended first to begin with.
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

// release gives n reserved bytes back. What a discarded file had is given back already.
func (s *Store) release(f *file, n int64) {
	s.disk.Lock()
	defer s.disk.Unlock()
	if !f.closed() {
		s.change(func() { s.stats.Bytes -= n })
		f.held -= n
	}
}

// room returns how many bytes may be written.
func (s *Store) room() int64 { return s.cfg.Budget - s.stats.Bytes }

// evict gives up the artifacts of the diagnosis that ended first, and returns false
// where there is none.
func (s *Store) evict() bool {
	oldest := ""
	for id, d := range s.diagnoses {
		if d.running {
			continue
		}
		if o := s.diagnoses[oldest]; o == nil || d.last.Before(o.last) || d.last.Equal(o.last) && id < oldest {
			oldest = id
		}
	}
	d := s.diagnoses[oldest]
	if d == nil {
		return false
	}
	n, size := len(d.artifacts), d.size()
	if err := s.remove(oldest); err != nil {
		// It is no more counted: the next Open sees it again.
		s.log.Warn("artifacts of a diagnosis were not removed", "diagnosis", oldest, "error", err)
	}
	s.change(func() {
		s.stats.Evicted += uint64(n)
		s.stats.EvictedBytes += uint64(size)
	})
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
	return s.removeFolders(id, d.folders)
}

// removeFolders removes the folders of a diagnosis. Where one can't be removed, or is not
// this store's, the index stays, which names it.
func (s *Store) removeFolders(id string, folders []string) error {
	var errs []error
	for _, folder := range folders {
		at, err := s.placeOf(id, folder)
		if err == nil {
			err = at.root.RemoveAll(at.dir)
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

// noRoom is the error of what there is no room for.
func noRoom(why string) error { return fmt.Errorf("%w: %s", operation.ErrArtifactBudget, why) }
