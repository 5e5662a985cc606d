package document

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// MaxFile is the largest file that [Read] takes, in bytes. A rule is about 500 bytes, so
// this is some 2,000 rules, twice what a rule set may hold.
const MaxFile = 1 << 20

// Reader is one file being read, and the mistakes found in it so far.
type Reader struct {
	Name   string
	Errors Errors

	lines []string
}

// Read reads one YAML document. The root is nil where nothing could be read;
// the mistake is then in the reader's Errors. An empty file has a nil root too.
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

// readable returns why a file is not read; nil: it is.
func readable(name string, data []byte, most int) *Error {
	switch {
	case len(data) > most:
		return &Error{File: name, Msg: fmt.Sprintf("file has %d bytes, at most %d are read", len(data), most)}
	case !utf8.Valid(data):
		return &Error{File: name, Msg: "file is not UTF-8"}
	}
	return nil
}

// guard turns a panic of the YAML library into an error: a file must not be able to end the
// program.
func guard(read func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("reader: %v", r)
		}
	}()
	return read()
}

// noAliases is why they are refused: they let a small file stand for a huge one, and who
// reads a file should see what it says.
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
