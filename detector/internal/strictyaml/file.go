package strictyaml

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"github.com/kernosis/kernosis/detector/mistake"
)

// MaxFile is the largest file read, in bytes. A rule is about 500 bytes, so
// this is some 2,000 rules, twice what a rule set may hold.
const MaxFile = 1 << 20

// maxErrors bounds what one file can say: nobody fixes the 101st mistake first.
const maxErrors = 100

// File is one file being read, and the mistakes found in it so far.
type File struct {
	Name   string
	Errors mistake.Errors

	lines []string
}

// Parse reads one YAML document. The root is nil where nothing could be read;
// the mistake is then in the file's Errors. An empty file has a nil root too.
func Parse(name string, data []byte) (*File, *yaml.Node) {
	f := &File{Name: name}
	if len(data) > MaxFile {
		f.add(0, 0, "", fmt.Sprintf("file has %d bytes, at most %d are read", len(data), MaxFile))
		return f, nil
	}
	if !utf8.Valid(data) {
		f.add(0, 0, "", "file is not UTF-8")
		return f, nil
	}
	if len(bytes.TrimSpace(data)) == 0 {
		f.add(0, 0, "", "file is empty")
		return f, nil
	}
	f.lines = strings.Split(string(data), "\n")
	var doc yaml.Node
	if err := load(data, &doc); err != nil {
		line, column, msg := 0, 0, err.Error()
		if le := (*yaml.LoadError)(nil); errors.As(err, &le) {
			line, column, msg = le.Mark.Line, le.Mark.Column, le.Message
		}
		f.add(line, column, "", "yaml: "+strings.TrimPrefix(msg, "yaml: "))
		return f, nil
	}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) == 0 {
		f.add(0, 0, "", "file is empty")
		return f, nil
	}
	root := doc.Content[0]
	if !f.plain(root) {
		return f, nil
	}
	return f, root
}

// load turns a panic of the YAML library into an error: a rule file must not
// be able to end the agent.
func load(data []byte, doc *yaml.Node) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("reader: %v", r)
		}
	}()
	return yaml.Load(data, doc)
}

// plain refuses aliases: they let a small file stand for a huge one, and a
// reader of a rule should see the rule.
func (f *File) plain(n *yaml.Node) bool {
	if n.Kind == yaml.AliasNode || n.Anchor != "" {
		f.Errorf(n, "", "anchors and aliases are not supported: write the value out")
		return false
	}
	for _, c := range n.Content {
		if !f.plain(c) {
			return false
		}
	}
	return true
}

// Errorf records a mistake at the node.
func (f *File) Errorf(n *yaml.Node, field, format string, args ...any) {
	f.add(n.Line, n.Column, field, fmt.Sprintf(format, args...))
}

// ErrorAt records a mistake at a character of a scalar's value, offset from 0.
func (f *File) ErrorAt(n *yaml.Node, offset int, field, format string, args ...any) {
	line, column := f.position(n, offset)
	f.add(line, column, field, fmt.Sprintf(format, args...))
}

func (f *File) add(line, column int, field, msg string) {
	switch len(f.Errors) {
	case maxErrors:
		f.Errors = append(f.Errors, &mistake.Error{File: f.Name, Msg: "more mistakes are not shown"})
	case maxErrors + 1:
	default:
		f.Errors = append(f.Errors, &mistake.Error{File: f.Name, Line: line, Column: column, Field: field, Msg: msg})
	}
}
