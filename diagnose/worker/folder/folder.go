// Package folder is a [worker.Store] without a cluster: what runs is made of comes from the
// shipped manifests and a folder of others over them, and Diagnoses are known to this node
// alone.
//
// It must not decide anything: what was taken, what ran and what came of it is the worker's
// to remember.
package folder

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/worker"
	"github.com/kernosis/kernosis/diagnose/yamldoc"
)

// Config says where manifests are.
type Config struct {
	Shipped []yamldoc.File
	// Dir has those that come over the shipped ones, by kind and name; empty: none.
	Dir      string
	Builtins []operation.Builtin
	// Watch calls onChange once it watches a folder, and whenever something in it has changed,
	// until ctx ends; nil: the folder is read once.
	Watch func(ctx context.Context, dir string, onChange func()) error
	Log   *slog.Logger // nil: takes nothing
}

// Store implements worker.Store. Make one with [Open].
type Store struct {
	c Config

	mu      sync.Mutex
	objects *worker.Objects
	reloads Reloads
	last    []yamldoc.File // what was read last; of Run's goroutine
}

// Reloads counts how often the folder was read again.
type Reloads struct{ Taken, Refused uint64 }

// Open reads the manifests. Its error has all mistakes with file and line.
func Open(c Config) (*Store, error) {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	s := &Store{c: c}
	files, err := s.read()
	if err != nil {
		return nil, err
	}
	s.last = files
	if s.objects, err = Load(c.Shipped, files, c.Builtins); err != nil {
		return nil, err
	}
	return s, nil
}

// Run implements worker.Store: it reads the folder again when it changes. Where anything in
// it is wrong, what was in force stays.
func (s *Store) Run(ctx context.Context, h worker.Handler) error {
	h.ObjectsChanged()
	if s.c.Dir == "" || s.c.Watch == nil {
		<-ctx.Done()
		return nil
	}
	return s.c.Watch(ctx, s.c.Dir, func() { s.reload(h) })
}

func (s *Store) reload(h worker.Handler) {
	files, err := s.read()
	var known *worker.Objects
	if err == nil {
		if slices.EqualFunc(files, s.last, func(a, b yamldoc.File) bool { return a.Name == b.Name && bytes.Equal(a.Data, b.Data) }) {
			return
		}
		s.last = files
		known, err = Load(s.c.Shipped, files, s.c.Builtins)
	}
	if err != nil {
		s.mu.Lock()
		s.reloads.Refused++
		s.mu.Unlock()
		s.c.Log.Error("diagnoses not reloaded, those in force stay", "error", err)
		return
	}
	s.mu.Lock()
	s.reloads.Taken++
	s.objects = known
	s.mu.Unlock()
	s.c.Log.Info("diagnoses reloaded", "dir", s.c.Dir, "operation_sets", len(known.OperationSets), "triggers", len(known.Triggers))
	h.ObjectsChanged()
}

// Objects implements worker.Store.
func (s *Store) Objects() *worker.Objects {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects
}

// Reloads returns what was counted.
func (s *Store) Reloads() Reloads {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reloads
}

// Create implements worker.Store: it gives the Diagnosis a UID, and keeps nothing.
func (s *Store) Create(_ context.Context, d *v1alpha1.Diagnosis) (*v1alpha1.Diagnosis, error) {
	var random [16]byte
	_, _ = rand.Read(random[:]) // it does not fail
	out := d.DeepCopy()
	out.UID = types.UID("local-" + hex.EncodeToString(random[:]))
	out.CreationTimestamp = metav1.Now()
	out.Generation = cmp.Or(out.Generation, 1)
	return out, nil
}

// Write implements worker.Store: it keeps nothing, and returns name and status alone. The
// worker writes the whole of what there is to say each time, and nobody else does.
func (s *Store) Write(_ context.Context, k worker.Key, change func(*v1alpha1.DiagnosisStatus)) (*v1alpha1.Diagnosis, error) {
	if k.UID == "" {
		return nil, errors.New("a Diagnosis without a UID was not made here")
	}
	d := &v1alpha1.Diagnosis{}
	d.Namespace, d.Name, d.UID = k.Namespace, k.Name, k.UID
	change(&d.Status)
	return d, nil
}

// read reads the folder.
func (s *Store) read() ([]yamldoc.File, error) {
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
		return nil, nil // which a person who names it on a command line would hardly mean
	}
	files, err := yamldoc.ReadFiles([]string{s.c.Dir}, nil)
	if err != nil {
		return nil, fmt.Errorf("manifests of diagnoses: %w", err)
	}
	return files, nil
}
