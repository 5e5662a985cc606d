// Package document reads YAML and JSON files that people write. It reports every mistake of a
// file at once, each with its file, line, column and field, and suggests the names that were
// probably meant.
//
// [Read] reads one document of settings or rules; [Reader] then decodes it node by node, because
// only nodes know their positions. [Parse] reads manifests, any number of objects in a file, and
// refuses values that other YAML readers would read differently. Both refuse aliases and files
// that are too large.
package document

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// MaxFile is the largest file that [Read] accepts, in bytes. A rule has about 500 bytes, so this
// is about 2,000 rules, twice the maximum of a rule set.
const MaxFile = 1 << 20

// Reader is a file being read, with the mistakes found so far.
type Reader struct {
	Name   string
	Errors Errors

	lines []string
}

// Read reads one YAML document. The root is nil if nothing could be read; the mistake is then in
// the reader's Errors. It is nil for an empty file, too.
func Read(name string, data []byte) (*Reader, *yaml.Node) {
	r := &Reader{Name: name}
	if e := readable(name, data, MaxFile); e != nil {
		r.append(e)
		return r, nil
	}
	var doc yaml.Node
	if len(bytes.TrimSpace(data)) > 0 {
		if err := guard(func() error { return yaml.Load(data, &doc) }); err != nil {
			r.append(fromYAML(name, err))
			return r, nil
		}
	}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) == 0 {
		r.append(&Error{File: name, Msg: "file is empty"})
		return r, nil
	}
	r.lines = strings.Split(string(data), "\n")
	root := doc.Content[0]
	if !r.plain(root) {
		return r, nil
	}
	return r, root
}

// readable returns why a file can't be read; nil if it can.
func readable(name string, data []byte, most int) *Error {
	switch {
	case len(data) > most:
		return &Error{File: name, Msg: fmt.Sprintf("file has %d bytes, at most %d are allowed", len(data), most)}
	case !utf8.Valid(data):
		return &Error{File: name, Msg: "file is not UTF-8"}
	}
	return nil
}

// guard turns a panic of the YAML library into an error: no file may crash the program.
func guard(read func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("reader: %v", r)
		}
	}()
	return read()
}

// noAliases: aliases let a small file expand to a huge one, and readers should see a file's values.
const noAliases = "anchors and aliases are not supported: write the value out"

func (r *Reader) plain(n *yaml.Node) bool {
	if n.Kind == yaml.AliasNode || n.Anchor != "" {
		r.Errorf(n, "", noAliases)
		return false
	}
	for _, c := range n.Content {
		if !r.plain(c) {
			return false
		}
	}
	return true
}

// Errorf records a mistake at the node.
func (r *Reader) Errorf(n *yaml.Node, field, format string, args ...any) {
	r.append(&Error{File: r.Name, Line: n.Line, Column: n.Column, Field: field, Msg: fmt.Sprintf(format, args...)})
}

func (r *Reader) append(e *Error) {
	switch len(r.Errors) {
	case maxErrors:
		r.Errors = append(r.Errors, &Error{File: r.Name, Msg: "more mistakes are not shown"})
	case maxErrors + 1:
	default:
		r.Errors = append(r.Errors, e)
	}
}
