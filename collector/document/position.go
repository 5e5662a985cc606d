package document

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// position returns the place of a character of a scalar's value in the file, by the rules of the
// scalar's style, so that a mistake inside an expression is reported exactly where it is.
func (r *Reader) position(n *yaml.Node, offset int) (line, column int) {
	line, column = n.Line, n.Column
	if line < 1 || line > len(r.lines) || column < 1 {
		return line, column
	}
	if n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
		return r.blockPosition(n, offset)
	}
	w := walker{lines: r.lines, line: line - 1, column: column - 1}
	switch {
	case n.Style&yaml.DoubleQuotedStyle != 0:
		w.quote = '"'
	case n.Style&yaml.SingleQuotedStyle != 0:
		w.quote = '\''
	}
	if w.quote != 0 {
		w.column++
	}
	for range offset {
		if !w.next() {
			return n.Line, n.Column
		}
	}
	return w.line + 1, w.column + 1
}

// blockPosition handles | and >: each line of the source, without its indentation, is one of the value.
func (r *Reader) blockPosition(n *yaml.Node, offset int) (line, column int) {
	indent := -1
	for i := n.Line; i < len(r.lines); i++ {
		text := r.lines[i]
		if trimmed := strings.TrimLeft(text, " "); indent < 0 && trimmed != "" {
			indent = len(text) - len(trimmed)
		}
		content := max(0, utf8.RuneCountInString(text)-max(indent, 0))
		if offset <= content {
			return i + 1, max(indent, 0) + offset + 1
		}
		offset -= content + 1
	}
	return n.Line, n.Column
}

// walker steps through a flow scalar (plain or quoted), one character of the value at a time.
type walker struct {
	lines        []string
	line, column int // from 0, column in runes
	quote        byte
}

// next skips the source of one character of the value.
func (w *walker) next() bool {
	rest := w.rest()
	if strings.TrimSpace(rest) == "" {
		// A line break inside the scalar, with the white space around it, is one space; blank
		// lines after it are one line feed each, instead of the space.
		fold := strings.TrimSpace(w.lines[w.line]) != ""
		w.line++
		if fold && w.line+1 < len(w.lines) && strings.TrimSpace(w.lines[w.line]) == "" {
			w.line++
		}
		if w.line >= len(w.lines) {
			return false
		}
		text := w.lines[w.line]
		w.column = len(text) - len(strings.TrimLeft(text, " "))
		return true
	}
	switch {
	case w.quote == '"' && rest[0] == '\\' && len(rest) > 1:
		switch rest[1] {
		case 'x':
			w.column += 4
		case 'u':
			w.column += 6
		case 'U':
			w.column += 10
		default:
			w.column += 2
		}
	case w.quote == '\'' && strings.HasPrefix(rest, "''"):
		w.column += 2
	default:
		w.column++
	}
	return true
}

// rest returns the source from the current column to the end of the line.
func (w *walker) rest() string {
	text := w.lines[w.line]
	for range w.column {
		_, size := utf8.DecodeRuneInString(text)
		text = text[size:]
	}
	return text
}

// Lines returns the line of each value of a YAML document by its path, such as "logs[1].path".
func Lines(raw []byte) (map[string]int, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(raw, &doc); err != nil {
		return nil, err
	}
	lines := map[string]int{}
	for _, root := range doc.Content {
		noteLines(root, "", lines)
	}
	return lines, nil
}

func noteLines(n *yaml.Node, path string, lines map[string]int) {
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			at := n.Content[i].Value
			if path != "" {
				at = path + "." + at
			}
			lines[at] = n.Content[i].Line
			noteLines(n.Content[i+1], at, lines)
		}
	case yaml.SequenceNode:
		for i, item := range n.Content {
			at := fmt.Sprintf("%s[%d]", path, i)
			lines[at] = item.Line
			noteLines(item, at, lines)
		}
	}
}
