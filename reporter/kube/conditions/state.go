package conditions

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/kernosis/kernosis/collector/statefile"
)

// maxStateFile is far more than maxTypes names take.
const maxStateFile = 64 << 10

// written is what the state file has.
type written struct {
	Node  string   `json:"node"`
	Types []string `json:"types"` // that we have, or may have, in the API
}

// readState returns the types that an earlier run on this node has written. A file
// that is damaged is told of and taken for none: conditions of a node do not wait for
// a person.
func readState(path, node string) ([]string, error) {
	if path == "" {
		return nil, nil
	}
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxStateFile))
	if err != nil {
		return nil, err
	}
	var w written
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&w); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if w.Node != node {
		return nil, nil // the disk has moved to another node, or the node has another name
	}
	// The file decides what is deleted, so it can't name what is not ours.
	return slices.DeleteFunc(w.Types, func(t string) bool { return checkType(t) != nil }), nil
}

// writeState replaces the file as a whole.
func writeState(path, node string, types []string) error {
	if path == "" {
		return nil
	}
	text, err := json.Marshal(written{Node: node, Types: types})
	if err != nil {
		return err
	}
	return statefile.File{Path: path, Durable: true}.Replace(append(text, '\n'))
}
