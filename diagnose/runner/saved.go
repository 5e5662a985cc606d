package runner

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/kernosis/kernosis/diagnose/graph"
	"github.com/kernosis/kernosis/diagnose/operation"
)

// Saved is a run read from its checkpoint.
type Saved struct {
	Report *Report
	Graph  *graph.Graph
	// Effects are the effects of the nodes, by id.
	Effects    []operation.Effect
	Parameters map[string]string
}

// ReadSaved reads the run with an id from a folder of checkpoints, and changes nothing. If a node
// is Running or waits, the run is in progress, here or in another process, or was interrupted: the
// checkpoint does not distinguish the two.
//
// Errors: [fs.ErrNotExist] if there is no checkpoint, and [*CheckpointError].
func ReadSaved(dir, id string) (*Saved, error) {
	if !ValidID(id) {
		return nil, fmt.Errorf("%.140q is not the ID of a diagnosis", id)
	}
	s := store{path: SavedPath(dir, id)}
	cp, err := s.load()
	if err != nil {
		return nil, err
	}
	if cp == nil {
		return nil, &fs.PathError{Op: "read checkpoint", Path: s.path, Err: fs.ErrNotExist}
	}
	g, run, err := cp.replay()
	if err != nil {
		return nil, &CheckpointError{s.path, err}
	}
	e := &execution{d: &Diagnosis{ID: id, Graph: g}, cp: cp, run: run}
	if w := cp.Waiting; w != nil && cp.Final == nil {
		if w.ID < 1 || w.ID >= g.Len() {
			return nil, &CheckpointError{s.path, errors.New("the waiting node is not in the graph")}
		}
		e.waiting = w
	}
	if b := cp.Begun; b != nil && cp.Final == nil {
		if b.ID < 1 || b.ID >= g.Len() {
			return nil, &CheckpointError{s.path, errors.New("the started node is not in the graph")}
		}
		e.running = e.newRecord(b.ID)
		e.running.Start = b.At
	}
	return &Saved{Report: e.report(), Graph: g, Parameters: cp.Plan.Parameters, Effects: cp.Plan.Effects}, nil
}

// SavedPath returns the path of a run's checkpoint.
func SavedPath(dir, id string) string { return filepath.Join(dir, id+extension) }

// SavedIDs returns the ids of all checkpoints in a folder, sorted.
func SavedIDs(dir string) ([]string, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*"+extension)) // sorted
	if err != nil {
		return nil, fmt.Errorf("list checkpoints: %w", err)
	}
	var ids []string
	for _, p := range paths {
		if id := p[len(filepath.Dir(p))+1 : len(p)-len(extension)]; ValidID(id) {
			ids = append(ids, id)
		}
	}
	return ids, nil
}
