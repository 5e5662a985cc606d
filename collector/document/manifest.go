package document

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Bounds of the content of one file.
const (
	maxDocuments = 2000
	maxDepth     = 64 // nested mappings and lists; a manifest has about 12
)

// Object is one object of a file.
type Object struct {
	File   string
	Number int // of the document in its file, from 1
	// Root is the object. It has no aliases.
	Root *yaml.Node

	prefix string // "items[3]." for an item of a List
}

// Parse splits a file into its objects; items of a List are objects of their own. It returns all
// readable objects, and the mistakes in the rest.
func Parse(f File) ([]*Object, Errors) {
	p := &parser{file: f.Name}
	if e := readable(f.Name, f.Data, maxManifests); e != nil {
		return nil, Errors{e}
	}
	roots, err := load(f.Data)
	for i, root := range roots {
		if len(root.Content) == 0 || IsNull(root.Content[0]) {
			continue // empty, between two "---" lines
		}
		p.document(&Object{File: f.Name, Number: i + 1, Root: root.Content[0]})
	}
	if err != nil {
		p.errors = append(p.errors, fromYAML(f.Name, err))
	}
	return p.documents, p.errors
}

// load reads documents until one is not valid YAML.
func load(data []byte) (roots []*yaml.Node, err error) {
	loader, err := yaml.NewLoader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	for {
		var root yaml.Node
		err := guard(func() error { return loader.Load(&root) })
		switch {
		case errors.Is(err, io.EOF):
			return roots, nil
		case err != nil:
			return roots, err
		case len(roots) == maxDocuments:
			return roots, fmt.Errorf("more than %d documents", maxDocuments)
		}
		roots = append(roots, &root)
	}
}

func fromYAML(file string, err error) *Error {
	e := &Error{File: file, Msg: err.Error()}
	if le := (*yaml.LoadError)(nil); errors.As(err, &le) {
		e.Line, e.Column, e.Msg = le.Mark.Line, le.Mark.Column, le.Message
	}
	e.Msg = "yaml: " + strings.TrimPrefix(e.Msg, "yaml: ")
	return e
}

// parser collects the objects of a file.
type parser struct {
	file      string
	documents []*Object
	errors    Errors
}

func (p *parser) document(d *Object) {
	before := len(p.errors)
	p.plain(d.Root, d.prefix, 0)
	if len(p.errors) > before {
		return
	}
	if d.Root.Kind != yaml.MappingNode {
		p.errors = append(p.errors, d.At(d.Root, "", "want an object, have %s", Kind(d.Root)))
		return
	}
	items := Child(d.Root, "items")
	if d.prefix != "" || items == nil || items.Kind != yaml.SequenceNode || !strings.HasSuffix(d.Text("kind"), "List") {
		p.documents = append(p.documents, d)
		return
	}
	for i, item := range items.Content {
		p.document(&Object{File: d.File, Number: d.Number, Root: item, prefix: fmt.Sprintf("items[%d].", i)})
	}
}

// plain reports values that YAML readers interpret differently.
func (p *parser) plain(n *yaml.Node, field string, depth int) {
	wrong := func(n *yaml.Node, format string, args ...any) {
		p.errors = append(p.errors, &Error{File: p.file, Line: n.Line, Column: n.Column, Field: strings.TrimSuffix(field, "."), Msg: fmt.Sprintf(format, args...)})
	}
	switch {
	case depth > maxDepth:
		wrong(n, "more than %d levels deep", maxDepth)
		return
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		wrong(n, noAliases)
		return
	case n.Kind == yaml.ScalarNode:
		if msg := scalarMistake(n); msg != "" {
			wrong(n, "%s", msg)
		}
	case n.Kind == yaml.SequenceNode:
		for i, item := range n.Content {
			p.plain(item, fmt.Sprintf("%s[%d].", strings.TrimSuffix(field, "."), i), depth+1)
		}
	case n.Kind == yaml.MappingNode:
		seen := make(map[string]int, len(n.Content)/2)
		for i := 0; i+1 < len(n.Content); i += 2 {
			k := n.Content[i]
			if k.Kind != yaml.ScalarNode || k.Anchor != "" || k.ShortTag() == "!!merge" {
				wrong(k, "want a name as key, have %s", Kind(k))
				continue
			}
			if line, twice := seen[k.Value]; twice {
				wrong(k, "duplicate key %q, first on line %d", k.Value, line)
				continue
			}
			seen[k.Value] = k.Line
			if msg := scalarMistake(k); msg != "" {
				wrong(k, "%s", msg)
			}
			p.plain(n.Content[i+1], field+k.Value+".", depth+1)
		}
	}
}

// At returns a mistake at a node. The field is a path within the object.
func (d *Object) At(n *yaml.Node, field, format string, args ...any) *Error {
	return &Error{File: d.File, Line: n.Line, Column: n.Column, Field: strings.TrimSuffix(d.prefix+field, "."), Msg: fmt.Sprintf(format, args...)}
}

// Text returns the text at a key of the object, such as "kind"; empty if there is none.
func (d *Object) Text(key string) string {
	if n := Child(d.Root, key); n != nil && n.Kind == yaml.ScalarNode {
		return n.Value
	}
	return ""
}

// Child returns the value at a key, or nil if n is nil, not a mapping, or does not have the key.
func Child(n *yaml.Node, key string) *yaml.Node {
	_, value := entry(n, key)
	return value
}

// entry returns a key and its value.
func entry(n *yaml.Node, key string) (k, value *yaml.Node) {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil, nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i], n.Content[i+1]
		}
	}
	return nil, nil
}

// IsNull reports whether a node is null.
func IsNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// Kind describes a node: a mapping, a list, text, the number 3.
func Kind(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.AliasNode:
		return "an alias"
	}
	switch n.ShortTag() {
	case "!!str":
		return "text"
	case "!!int", "!!float":
		return "the number " + n.Value
	case "!!bool":
		return "the boolean " + n.Value
	case "!!null":
		return "nothing"
	case "!!timestamp":
		return "a date"
	case "!!merge":
		return "a merge"
	}
	return "a value of type " + n.ShortTag()
}
