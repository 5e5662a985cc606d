// Package worker creates and runs the Diagnoses of one node.
//
//	problems ── trigger.Engine ──► wanted ──► Store.Create ──► run ──► Store.Write
//	Store (people's, the controller's) ───────────────────────►┘
//
// The [Store] is the API server. Without a cluster, it is a folder of manifests, and only this node
// knows the Diagnoses. Wanted and running Diagnoses are saved to disk, so that nothing is lost if the
// agent stops or the API server is down.
package worker

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/kernosis/kernosis/collector/document"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/manifest"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/resolve"
	"github.com/kernosis/kernosis/diagnose/trigger"
)

// Store has the Diagnoses and the objects that they use. Its methods may be called by several
// goroutines at once. Returned objects must not be changed.
type Store interface {
	// Run keeps the Store up to date, and notifies h of changes. It returns nil when ctx ends.
	Run(ctx context.Context, h Handler) error
	// Objects returns the objects in force, never nil. Before the first sync they are those saved
	// by the previous process, or empty.
	Objects() *Objects
	// Create creates a Diagnosis and returns the stored one. An existing Diagnosis of the same name
	// counts as created, regardless of its state. Create is retried only after an [ErrAway].
	Create(ctx context.Context, d *v1alpha1.Diagnosis) (*v1alpha1.Diagnosis, error)
	// Write changes the status of a Diagnosis and returns the new version. It calls change with the
	// newest known status, and again after a conflict; change must touch only the node's own part,
	// never plan and remediations. ErrGone: there is none with the UID any more. A Store that
	// stores no Diagnoses returns only name and status.
	Write(ctx context.Context, d Key, change func(*v1alpha1.DiagnosisStatus)) (*v1alpha1.Diagnosis, error)
}

// Key identifies a Diagnosis. One recreated under the same name has another UID.
type Key struct {
	types.NamespacedName
	UID types.UID
}

// Errors of a [Store], and of [Config.TenantPod].
var (
	ErrAway  = errors.New("the API server does not answer") // for now; it may later
	ErrGone  = errors.New("the Diagnosis is gone")
	ErrLater = errors.New("the pod is not known yet") // temporary
)

// Handler is notified of changes, by one goroutine for objects and one for Diagnoses. It must not
// block for long.
type Handler interface {
	// ObjectsChanged is called when Objects returns something else than before.
	ObjectsChanged()
	// Diagnosis is called for a new or changed Diagnosis of this node.
	Diagnosis(d *v1alpha1.Diagnosis)
	// Gone is called for a deleted one.
	Gone(k Key)
}

// Objects are the objects that runs use, each valid by its CRD.
type Objects struct {
	Operations    []*v1alpha1.Operation    `json:"operations"`
	OperationSets []*v1alpha1.OperationSet `json:"operationSets"`
	Triggers      []*v1alpha1.Trigger      `json:"triggers"`
}

// FolderConfig configures a [Folder].
type FolderConfig struct {
	Shipped []document.File
	// Dir has manifests that override the shipped ones, by kind and name; empty: none.
	Dir      string
	Builtins []operation.Builtin
	// Watch is [document.Watch]; nil: the folder is read once.
	Watch func(ctx context.Context, dir string, log *slog.Logger, onChange func())
	Log   *slog.Logger // nil: no log
}

// Folder is a [Store] without a cluster: its manifests are the shipped ones, overridden by those of
// a folder, and its Diagnoses are known to this node only. Create one with [OpenFolder].
type Folder struct {
	c       FolderConfig
	objects atomic.Pointer[Objects]
	// last are the files read last, or lastErr is why they could not be read. Only Run's goroutine
	// uses them.
	last    []document.File
	lastErr error
}

// OpenFolder reads the manifests. Its error lists all mistakes with file and line.
func OpenFolder(c FolderConfig) (*Folder, error) {
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	s := &Folder{c: c}
	files, err := s.read()
	if err != nil {
		return nil, err
	}
	s.last = files
	known, err := LoadObjects(c.Shipped, files, c.Builtins)
	if err != nil {
		return nil, err
	}
	s.objects.Store(known)
	return s, nil
}

// Run implements worker.Store: it reloads the folder after changes. If anything in it is invalid or
// can't be read, the previous manifests stay in force.
func (s *Folder) Run(ctx context.Context, h Handler) error {
	h.ObjectsChanged()
	if s.c.Dir == "" || s.c.Watch == nil {
		<-ctx.Done()
		return nil
	}
	s.c.Watch(ctx, s.c.Dir, s.c.Log, func() { s.reload(h) })
	return nil
}

func (s *Folder) reload(h Handler) {
	files, err := s.read()
	same := func(a, b document.File) bool { return a.Name == b.Name && bytes.Equal(a.Data, b.Data) }
	if slices.EqualFunc(files, s.last, same) && fmt.Sprint(err) == fmt.Sprint(s.lastErr) {
		return
	}
	s.last, s.lastErr = files, err
	var known *Objects
	if err == nil {
		known, err = LoadObjects(s.c.Shipped, files, s.c.Builtins)
	}
	if err != nil {
		s.c.Log.Error("diagnoses not reloaded; the previous ones stay in force", "error", err)
		return
	}
	s.objects.Store(known)
	s.c.Log.Info("diagnoses reloaded", "dir", s.c.Dir, "operation_sets", len(known.OperationSets), "triggers", len(known.Triggers))
	h.ObjectsChanged()
}

// Objects implements worker.Store.
func (s *Folder) Objects() *Objects { return s.objects.Load() }

// Create implements worker.Store: it assigns a UID and stores nothing.
func (s *Folder) Create(_ context.Context, d *v1alpha1.Diagnosis) (*v1alpha1.Diagnosis, error) {
	out := d.DeepCopy()
	out.UID = "local-" + uuid.NewUUID()
	out.CreationTimestamp = metav1.Now()
	out.Generation = cmp.Or(out.Generation, 1)
	return out, nil
}

// Write implements worker.Store: it stores nothing, and returns only name and status. That suffices
// because only the worker writes, and it writes the whole status each time.
func (s *Folder) Write(_ context.Context, k Key, change func(*v1alpha1.DiagnosisStatus)) (*v1alpha1.Diagnosis, error) {
	if k.UID == "" {
		return nil, errors.New("a Diagnosis without a UID was not made here")
	}
	d := &v1alpha1.Diagnosis{}
	d.Namespace, d.Name, d.UID = k.Namespace, k.Name, k.UID
	change(&d.Status)
	return d, nil
}

// read reads the folder.
func (s *Folder) read() ([]document.File, error) {
	if s.c.Dir == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(s.c.Dir)
	if err != nil {
		return nil, fmt.Errorf("manifests of diagnoses: %w", err)
	}
	if !slices.ContainsFunc(entries, func(e os.DirEntry) bool {
		return slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(e.Name()))
	}) {
		return nil, nil // here an empty folder is fine, unlike one named on a command line
	}
	files, err := document.ReadFiles([]string{s.c.Dir}, nil)
	if err != nil {
		return nil, fmt.Errorf("manifests of diagnoses: %w", err)
	}
	return files, nil
}

// LoadObjects reads shipped manifests and own ones that override them by kind and name, and checks
// that all of them can be run. Its error is a document.Errors with all mistakes.
func LoadObjects(shipped, own []document.File, builtins []operation.Builtin) (*Objects, error) {
	r, err := manifest.NewReader()
	if err != nil {
		return nil, err
	}
	below, err := r.Parse(shipped...)
	if err != nil {
		return nil, err
	}
	above, err := r.Parse(own...)
	if err != nil {
		return nil, err
	}
	out := &Objects{
		Operations:    over(below.Operations, above.Operations),
		OperationSets: over(below.OperationSets, above.OperationSets),
		Triggers:      over(below.Triggers, above.Triggers),
	}
	var wrong document.Errors
	at := func(o manifest.Object, field, format string, args ...any) {
		from := below
		if slices.Contains(above.Objects(), o) {
			from = above
		}
		wrong = append(wrong, from.At(o, field, format, args...))
	}
	checkKinds(above, at)
	checkSets(out, builtins, at)
	checkTriggers(out, at)
	wrong.Sort()
	if err := wrong.Err(); err != nil {
		return nil, err
	}
	return out, nil
}

// over merges two layers of objects: those above replace those below of the same name.
func over[O manifest.Object](below, above []O) []O {
	out := slices.DeleteFunc(slices.Clone(below), func(b O) bool {
		return slices.ContainsFunc(above, func(a O) bool { return a.GetName() == b.GetName() })
	})
	return append(out, above...)
}

// mistakeAt records a mistake in an object.
type mistakeAt func(o manifest.Object, field, format string, args ...any)

// checkKinds rejects kinds that have no meaning on a node without a cluster.
func checkKinds(own *manifest.Set, at mistakeAt) {
	for _, p := range own.RemediationPolicies {
		at(p, "kind", "a RemediationPolicy needs a cluster: without one each repair is reported as one that would run")
	}
	for _, d := range own.Diagnoses {
		at(d, "kind", "a Diagnosis can't be a manifest of a node: use kernosis diagnose run")
	}
}

// checkSets checks each OperationSet with the merged Operations: one that overrides another may break a
// set that uses it.
func checkSets(all *Objects, builtins []operation.Builtin, at mistakeAt) {
	config := resolve.Of(all.Operations, builtins)
	reported := map[string]bool{}
	for _, set := range all.OperationSets {
		_, err := resolve.Set(config, set)
		var faults resolve.Faults
		if err != nil && !errors.As(err, &faults) {
			at(set, "spec", "%s", err)
		}
		for _, f := range faults {
			if reported[f.Error()] {
				continue // a fault of an Operation is reported with the first set that uses it
			}
			reported[f.Error()] = true
			at(f.Object, f.Field, "%s", f.Message)
		}
	}
}

// checkTriggers checks that each Trigger can start something here.
func checkTriggers(all *Objects, at mistakeAt) {
	var sets []string
	for _, s := range all.OperationSets {
		sets = append(sets, s.Name)
	}
	for _, t := range all.Triggers {
		if t.Spec.SourceTemplate.ProblemTemplate == nil {
			at(t, "spec.sourceTemplate", "needs a cluster: without one a node diagnoses only its own problems (problemTemplate)")
		}
		if !slices.Contains(sets, t.Spec.OperationSet) {
			at(t, "spec.operationSet", "there is no OperationSet %.80q%s", t.Spec.OperationSet, document.Suggest(t.Spec.OperationSet, sets))
		}
		_, err := trigger.Compile(t)
		var errs trigger.Errors
		if err != nil && !errors.As(err, &errs) {
			at(t, "spec", "%s", err)
		}
		for _, e := range errs {
			at(t, e.Field, "%s", e.Msg)
		}
	}
}
