package conditions

import (
	"slices"

	"github.com/kernosis/kernosis/collector/statefile"
)

// stateVersion changes when older versions of Kernosis must no longer read the file.
const stateVersion = 1

// written is the content of the state file.
type written struct {
	Node  string   `json:"node"`
	Types []string `json:"types"` // types that we have, or may have, in the API
}

// readState returns the types that an earlier run on this node has written. On an error, the
// caller logs it and continues without them: a node's conditions must not wait for a person.
func readState(path, node string) ([]string, error) {
	if path == "" {
		return nil, nil
	}
	var w written
	if _, err := (statefile.File{Path: path}).Load(stateVersion, &w); err != nil {
		return nil, err
	}
	if w.Node != node {
		return nil, nil // the disk has moved to another node, or the node was renamed
	}
	// The file decides what is deleted, so ignore types that can't be ours.
	return slices.DeleteFunc(w.Types, func(t string) bool { return CheckType(t) != nil }), nil
}

// writeState replaces the whole file.
func writeState(path, node string, types []string) error {
	if path == "" {
		return nil
	}
	return statefile.File{Path: path, Durable: true}.Save(written{Node: node, Types: types})
}
