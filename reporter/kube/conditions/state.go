package conditions

import (
	"slices"

	"github.com/kernosis/kernosis/collector/statefile"
)

// stateVersion changes when an older version of Kernosis must not read the form any more.
const stateVersion = 1

// written is what the state file has.
type written struct {
	Node  string   `json:"node"`
	Types []string `json:"types"` // that we have, or may have, in the API
}

// readState returns the types that an earlier run on this node has written. The caller
// logs an error and continues without them: conditions of a node do not wait for a
// person.
func readState(path, node string) ([]string, error) {
	if path == "" {
		return nil, nil
	}
	var w written
	if _, err := (statefile.File{Path: path}).Load(stateVersion, &w); err != nil {
		return nil, err
	}
	if w.Node != node {
		return nil, nil // the disk has moved to another node, or the node has another name
	}
	// The file decides what is deleted, so it can't name what is not ours.
	return slices.DeleteFunc(w.Types, func(t string) bool { return CheckType(t) != nil }), nil
}

// writeState replaces the file as a whole.
func writeState(path, node string, types []string) error {
	if path == "" {
		return nil
	}
	return statefile.File{Path: path, Durable: true}.Save(written{Node: node, Types: types})
}
