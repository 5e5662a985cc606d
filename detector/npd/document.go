package npd

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/detector"
)

// Bounds of a file. NPD's largest file has 15 rules in 3 KiB.
const (
	// MaxFile is the largest file read, in bytes.
	MaxFile = 1 << 20
	// MaxFileRules is the most rules of one file: half of what a rule set holds.
	MaxFileRules = 500
	// maxMessages bounds the mistakes, and the warnings, of one file.
	maxMessages = 100
	// maxText bounds each text; it is the bound of patterns.
	maxText = 4096
	// maxPeriod bounds durations; it is the bound of our rules.
	maxPeriod = 30 * 24 * time.Hour
)

// document collects the mistakes and warnings of a file.
type document struct {
	name     string
	data     []byte
	mistakes detector.Errors
	warnings detector.Errors
}

// at returns a message with the line and column of a byte offset.
func (d *document) at(offset int, field, msg string) *detector.Error {
	before := d.data[:min(offset, len(d.data))]
	line := bytes.Count(before, []byte{'\n'}) + 1
	start := bytes.LastIndexByte(before, '\n') + 1
	return &detector.Error{File: d.name, Line: line, Column: utf8.RuneCount(before[start:]) + 1, Field: field, Msg: msg}
}

func (d *document) errorf(offset int, field, format string, args ...any) {
	d.mistakes = d.add(d.mistakes, offset, field, fmt.Sprintf(format, args...))
}

func (d *document) warnf(offset int, field, format string, args ...any) {
	d.warnings = d.add(d.warnings, offset, field, fmt.Sprintf(format, args...))
}

func (d *document) add(list detector.Errors, offset int, field, msg string) detector.Errors {
	switch len(list) {
	case maxMessages:
		return append(list, &detector.Error{File: d.name, Msg: "further messages are omitted"})
	case maxMessages + 1:
		return list
	}
	return append(list, d.at(offset, field, msg))
}

// reader reads the members of an object. As in NPD, the case of a key doesn't
// matter, null counts as absent, and the last of duplicate keys is used.
type reader struct {
	d      *document
	path   string // "rules[2]", empty at the top
	offset int
	values map[string]*node // by known key
}

// read returns a reader for an object; another value is a mistake. An unknown key is a warning.
func (d *document) read(n *node, path string, known ...string) *reader {
	r := &reader{d: d, path: path, offset: n.offset, values: make(map[string]*node)}
	if n.kind != object {
		d.errorf(n.offset, path, "want an object, have %s", n.kind)
		return r
	}
	for _, m := range n.members {
		key := m.name
		if !slices.Contains(known, key) {
			i := slices.IndexFunc(known, func(k string) bool { return strings.EqualFold(k, key) })
			if i < 0 {
				d.warnf(m.offset, r.field(shown(key)), "unknown key, ignored")
				continue
			}
			key = known[i]
		}
		if m.value.kind == null {
			continue
		}
		if r.values[key] != nil {
			d.warnf(m.offset, r.field(key), "is set twice: the last value is used")
		}
		r.values[key] = m.value
	}
	return r
}

// shown returns a text of the file for display: bounded and printable.
func shown(s string) string {
	if q := strconv.QuoteToGraphic(s); len(q) <= 80 && q == `"`+s+`"` {
		return s
	}
	return strconv.QuoteToGraphic(display.Cut(s, 60))
}

func (r *reader) field(key string) string {
	if r.path == "" {
		return key
	}
	return r.path + "." + key
}

// at returns the position of a key's value, or of the object if the key is absent.
func (r *reader) at(key string) int {
	if n := r.values[key]; n != nil {
		return n.offset
	}
	return r.offset
}

// errorf adds a mistake at a key, or at the object if the key is absent.
func (r *reader) errorf(key, format string, args ...any) {
	r.d.errorf(r.at(key), r.field(key), format, args...)
}

func (r *reader) warnf(key, format string, args ...any) {
	r.d.warnf(r.at(key), r.field(key), format, args...)
}

// get returns the value of a key if it has the kind; another kind is a mistake.
func (r *reader) get(key string, k kind) *node {
	n := r.values[key]
	if n == nil {
		return nil
	}
	if n.kind != k {
		r.errorf(key, "want %s, have %s", k, n.kind)
		return nil
	}
	return n
}

// object returns a reader for the object of a key, which is empty if the key is absent.
func (r *reader) object(key string, known ...string) *reader {
	if n := r.get(key, object); n != nil {
		return r.d.read(n, r.field(key), known...)
	}
	return &reader{d: r.d, path: r.field(key), offset: r.offset}
}

// text returns a text, or def if it is absent or empty.
func (r *reader) text(key, def string) string {
	n := r.get(key, text)
	if n == nil || n.text == "" {
		return def
	}
	if len(n.text) > maxText {
		r.errorf(key, "has %d bytes, at most %d are allowed", len(n.text), maxText)
		return def
	}
	return n.text
}

// required is like text, for a mandatory key.
func (r *reader) required(key, why string) string {
	if n := r.values[key]; n == nil || n.kind == text && n.text == "" {
		r.errorf(key, "is missing%s", why)
		return ""
	}
	return r.text(key, "")
}

func (r *reader) texts(key string, most int) []string {
	var out []string
	for i, item := range r.items(key, most) {
		switch field := fmt.Sprintf("%s[%d]", r.field(key), i); {
		case item.kind != text:
			r.d.errorf(item.offset, field, "want text, have %s", item.kind)
		case len(item.text) > maxText:
			r.d.errorf(item.offset, field, "has %d bytes, at most %d are allowed", len(item.text), maxText)
		default:
			out = append(out, item.text)
		}
	}
	return out
}

func (r *reader) bool(key string, def bool) bool {
	if n := r.get(key, boolean); n != nil {
		return n.truth
	}
	return def
}

func (r *reader) int(key string, def, low, high int) int {
	n := r.get(key, number)
	if n == nil {
		return def
	}
	v, err := strconv.Atoi(n.text)
	if err != nil || v < low || v > high {
		r.errorf(key, "want a whole number from %d to %d, have %s", low, high, display.Cut(n.text, 30))
		return def
	}
	return v
}

// duration reads a Go duration ("5m", "0") of at least low.
func (r *reader) duration(key string, def, low time.Duration) time.Duration {
	s := r.text(key, "")
	if s == "" {
		return def
	}
	v, err := time.ParseDuration(s)
	switch {
	case err != nil:
		r.errorf(key, "want a duration such as 5m, have %s", strconv.QuoteToGraphic(display.Cut(s, 30)))
	case v < 0:
		r.errorf(key, "is negative: %s", s)
	case v < low:
		r.errorf(key, "want at least %v, have %s", low, s)
	case v > maxPeriod:
		r.errorf(key, "want at most %v, have %s", maxPeriod, s)
	default:
		return v
	}
	return def
}

// regexp reads an expression and compiles it.
func (r *reader) regexp(key string, required bool, why string) string {
	var s string
	if required {
		s = r.required(key, why)
	} else {
		s = r.text(key, "")
	}
	if s != "" {
		if _, err := regexp.Compile(s); err != nil {
			r.errorf(key, "%v", err)
			return ""
		}
	}
	return s
}

// items returns the items of a list; of a list that is too long, the first.
func (r *reader) items(key string, most int) []*node {
	n := r.get(key, list)
	if n == nil {
		return nil
	}
	if len(n.items) > most {
		r.errorf(key, "has %d items, at most %d are allowed", len(n.items), most)
	}
	return n.items[:min(len(n.items), most)]
}
