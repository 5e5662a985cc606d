package artifact

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/diagnose/operation"
)

// ErrRunning is the error of an attempt to remove artifacts of a running diagnosis, or to begin it
// twice.
var ErrRunning = errors.New("the diagnosis is running")

// Run stores the artifacts of a running diagnosis. Several operations may use it at once.
type Run struct {
	s     *Store
	id    string
	d     *diagnosis
	files map[string]*file // those being written
	ended bool
}

// Begin keeps the artifacts of a diagnosis, including those of an interrupted run, until [Run.End].
// The id (the UID) has letters, digits, '.', '_' and '-'.
func (s *Store) Begin(id string) (*Run, error) {
	if err := checkID(id); err != nil {
		return nil, err
	}
	s.disk.Lock()
	defer s.disk.Unlock()
	d := s.diagnoses[id]
	if d == nil {
		if d = s.left[id]; d == nil {
			d = &diagnosis{artifacts: map[string]Artifact{}}
		}
		s.change(func() { s.diagnoses[id] = d })
	}
	if d.running {
		return nil, fmt.Errorf("artifacts of %s: %w", id, ErrRunning)
	}
	d.running = true
	return &Run{s: s, id: id, d: d, files: map[string]*file{}}, nil
}

// End allows the store to evict the diagnosis' artifacts. It discards artifacts that are not
// closed. It may be called more than once.
func (r *Run) End() {
	r.s.disk.Lock()
	defer r.s.disk.Unlock()
	if r.ended {
		return
	}
	r.ended, r.d.running = true, false
	for name, f := range r.files {
		r.s.change(func() { r.s.stats.Discarded++ })
		r.s.log.Warn("discarded an artifact that was never closed", "diagnosis", r.id, "artifact", name)
		f.discard()
	}
	if len(r.d.artifacts) == 0 {
		r.s.change(func() { delete(r.s.diagnoses, r.id) })
		if r.s.left[r.id] != nil {
			return
		}
		_ = r.s.removeFolders(r.id, r.d.folders) // only what can't be removed is left in them
	}
}

// create creates an artifact in an operation's folder; empty: in the store's own folder. If the
// diagnosis already has an artifact with this name, the error is [fs.ErrExist].
func (r *Run) create(name, folder string) (io.WriteCloser, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	f, err := r.reserve(name, folder)
	if err != nil {
		return nil, err
	}
	opened, err := f.open()
	r.s.disk.Lock()
	defer r.s.disk.Unlock()
	if err != nil {
		delete(r.files, name)
		r.s.change(func() { r.s.stats.Refused++ })
		return nil, fmt.Errorf("artifact %s: %w", name, err)
	}
	if f.f = opened; f.closed() {
		f.drop()
		return nil, ended(name)
	}
	return f, nil
}

// reserve reserves the name of an artifact that is about to be created.
func (r *Run) reserve(name, folder string) (*file, error) {
	r.s.disk.Lock()
	defer r.s.disk.Unlock()
	_, whole := r.d.artifacts[name]
	switch {
	case r.ended:
		return nil, ended(name)
	case whole || r.files[name] != nil:
		return nil, fmt.Errorf("artifact %s: %w", name, fs.ErrExist)
	case len(r.d.artifacts)+len(r.files) >= maxArtifacts:
		r.s.change(func() { r.s.stats.Refused++ })
		return nil, noRoom(fmt.Sprintf("the diagnosis has %d artifacts", maxArtifacts))
	}
	at, err := r.s.placeOf(r.id, folder)
	if err != nil {
		r.s.change(func() { r.s.stats.Refused++ })
		return nil, fmt.Errorf("artifact %s: %w", name, err)
	}
	f := &file{r: r, name: name, folder: folder, at: at, sum: sha256.New(), done: make(chan struct{})}
	r.files[name] = f
	return f, nil
}

func ended(name string) error {
	return fmt.Errorf("artifact %s: the diagnosis has ended: %w", name, fs.ErrClosed)
}

// Of returns the artifacts of one node of the graph. Their names begin with its id. If a name
// exists, because of an earlier attempt, it gets a number: 3-stacks.txt, 3-stacks-2.txt.
//
// folder is where the operation stores them: relative to [Config.Storage], or an absolute path
// below it; empty: in the store's own folder. Of returns an error if the folder is not allowed. If
// it can't be created for another reason, such as a full disk, each Create fails.
func (r *Run) Of(node int, folder string) (operation.Artifacts, error) {
	o := ofNode{r: r, prefix: strconv.Itoa(node) + "-"}
	if folder == "" {
		return o, nil
	}
	path, err := r.s.below(folder)
	if err != nil {
		return nil, err
	}
	o.folder = filepath.Join(r.s.cfg.Storage, path)
	if o.err = r.s.makeFolder(path); errors.Is(o.err, unix.ENOTDIR) {
		return nil, o.err
	}
	if o.err == nil {
		o.err = r.use(o.folder)
	}
	if isFull(o.err) {
		o.err = fmt.Errorf("%w: %w", operation.ErrArtifactBudget, o.err)
	}
	return o, nil
}

type ofNode struct {
	r              *Run
	prefix, folder string
	err            error // why there is no folder
}

func (o ofNode) Create(name string) (io.WriteCloser, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	if o.err != nil {
		return nil, fmt.Errorf("artifact %s: %w", name, o.err)
	}
	w, err := o.r.create(o.prefix+name, o.folder)
	ext := path.Ext(name)
	for i := 2; errors.Is(err, fs.ErrExist) && i <= maxArtifacts; i++ {
		w, err = o.r.create(o.prefix+strings.TrimSuffix(name, ext)+"-"+strconv.Itoa(i)+ext, o.folder)
	}
	return w, err
}

// List returns the complete artifacts of a diagnosis, sorted by name. It does not wait for the
// disk.
func (s *Store) List(id string) []Artifact {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.diagnoses[id]
	if d == nil {
		return nil
	}
	return slices.SortedFunc(maps.Values(d.artifacts), func(a, b Artifact) int { return cmp.Compare(a.Name, b.Name) })
}

// Remove removes the artifacts of a diagnosis that doesn't run. It returns no error if there are
// none.
func (s *Store) Remove(id string) error {
	s.disk.Lock()
	defer s.disk.Unlock()
	d := s.diagnoses[id]
	switch {
	case d == nil:
		return nil
	case d.running:
		return fmt.Errorf("remove artifacts of %s: %w", id, ErrRunning)
	}
	return s.remove(id)
}

// finish turns a file that has been written into an artifact. The disk lock is held.
func (r *Run) finish(f *file, a Artifact) {
	delete(r.files, f.name)
	r.s.change(func() {
		r.d.artifacts[f.name] = a
		r.d.last = time.Now()
	})
	if err := r.s.addToIndex(r.id, a); err != nil {
		// The file exists all the same, and the next Open reads it.
		r.s.log.Warn("can't add an artifact to its index", "diagnosis", r.id, "artifact", a.Name, "error", err)
	}
}
