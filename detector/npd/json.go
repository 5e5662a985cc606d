package npd

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// kind is the type of a JSON value.
type kind byte

const (
	null kind = iota
	boolean
	number
	text
	list
	object
)

func (k kind) String() string {
	return [...]string{"nothing", "true or false", "a number", "text", "a list", "an object"}[k]
}

// node is a JSON value with its position in the file.
type node struct {
	kind    kind
	offset  int    // of its first byte
	text    string // of text and numbers
	truth   bool
	items   []*node  // of a list
	members []member // of an object, in file order
}

type member struct {
	name   string
	offset int
	value  *node
}

// maxDepth bounds nesting; NPD's files have five levels.
const maxDepth = 32

// parseJSON reads one JSON document. On an error it also returns the position. Positions
// are byte offsets in data.
func parseJSON(data []byte, warn func(offset int, msg string)) (*node, int, error) {
	if i := invalidUTF8(data); i >= 0 {
		return nil, i, errors.New("is not UTF-8")
	}
	data, commas := withoutTrailingCommas(data)
	var raw json.RawMessage
	if err := json.Unmarshal(data, &raw); err != nil {
		if se := (*json.SyntaxError)(nil); errors.As(err, &se) {
			return nil, max(0, int(se.Offset)-1), fmt.Errorf("json: %w", se)
		}
		return nil, 0, fmt.Errorf("json: %w", err)
	}
	for _, at := range commas {
		warn(at, "trailing comma: node-problem-detector rejects this file")
	}
	t := &tree{data: data, dec: json.NewDecoder(bytes.NewReader(data))}
	t.dec.UseNumber()
	root, err := t.value(0)
	return root, t.start, err
}

// invalidUTF8 returns the index of the first byte that is not UTF-8, or -1.
func invalidUTF8(data []byte) int {
	for i, r := range string(data) {
		if r == utf8.RuneError && !bytes.HasPrefix(data[i:], []byte("\ufffd")) {
			return i
		}
	}
	return -1
}

// withoutTrailingCommas replaces commas before a closing bracket by spaces, so
// that all offsets stay the same. It does not change data.
func withoutTrailingCommas(data []byte) (out []byte, at []int) {
	quoted, comma, before := false, -1, byte(0)
	for i := 0; i < len(data); i++ {
		c := data[i]
		switch {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted, comma, before = !quoted, -1, c
		case quoted || c == ' ' || c == '\t' || c == '\r' || c == '\n':
		case c == ',' && before != 0 && before != '[' && before != '{' && before != ',':
			comma, before = i, c
		case (c == ']' || c == '}') && comma >= 0:
			at = append(at, comma)
			comma, before = -1, c
		default:
			comma, before = -1, c
		}
	}
	if len(at) == 0 {
		return data, nil
	}
	out = bytes.Clone(data)
	for _, i := range at {
		out[i] = ' '
	}
	return out, at
}

// tree builds the nodes of a document that is known to be valid JSON.
type tree struct {
	data  []byte
	dec   *json.Decoder
	start int // of the latest token
}

func (t *tree) token() (json.Token, error) {
	t.start = int(t.dec.InputOffset())
	for t.start < len(t.data) && bytes.IndexByte([]byte(" \t\r\n,:"), t.data[t.start]) >= 0 {
		t.start++
	}
	tok, err := t.dec.Token()
	if errors.Is(err, io.EOF) {
		err = errors.New("json: unexpected end")
	}
	return tok, err
}

func (t *tree) value(depth int) (*node, error) {
	tok, err := t.token()
	if err != nil {
		return nil, err
	}
	n := &node{offset: t.start}
	switch v := tok.(type) {
	case bool:
		n.kind, n.truth = boolean, v
	case json.Number:
		n.kind, n.text = number, v.String()
	case string:
		n.kind, n.text = text, v
	case json.Delim:
		if depth == maxDepth {
			return nil, fmt.Errorf("nested deeper than %d", maxDepth)
		}
		if v == '[' {
			n.kind = list
		} else {
			n.kind = object
		}
		return n, t.inside(n, depth+1)
	}
	return n, nil
}

// inside reads the content of a list or object and its closing bracket.
func (t *tree) inside(n *node, depth int) error {
	for t.dec.More() {
		var m member
		if n.kind == object {
			tok, err := t.token()
			if err != nil {
				return err
			}
			name, _ := tok.(string) // nothing else is a key
			m.name, m.offset = name, t.start
		}
		v, err := t.value(depth)
		if err != nil {
			return err
		}
		if n.kind == list {
			n.items = append(n.items, v)
			continue
		}
		m.value = v
		n.members = append(n.members, m)
	}
	_, err := t.token()
	return err
}
