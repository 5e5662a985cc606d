package detector

import (
	"strings"
	"time"
	"unicode/utf8"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/event"
)

// MaxMessage bounds a rendered message, in bytes. It is the API server's limit for
// an Event (1,024).
const MaxMessage = 1024

// message is a text with ${expression} parts. It is immutable.
type message struct{ parts []piece }

// piece is a literal text or an expression.
type piece struct {
	literal string
	x       *expr
}

// parseMessage compiles a message. Error offsets are relative to the message.
func (c *compiler) parseMessage(s string) (*message, []exprError) {
	m := &message{}
	var errs []exprError
	literal := func(t string) {
		if t != "" {
			m.parts = append(m.parts, piece{literal: t})
		}
	}
	runes := func(byteOffset int) int { return utf8.RuneCountInString(s[:byteOffset]) }
	for at := 0; ; {
		i := strings.Index(s[at:], "${")
		if i < 0 {
			literal(s[at:])
			return m, errs
		}
		start := at + i + 2
		if i > 0 && s[start-3] == '$' { // $${ stands for ${
			literal(s[at:start-3] + "${")
			at = start
			continue
		}
		literal(s[at : start-2])
		end := closingBrace(s[start:])
		if end < 0 {
			errs = append(errs, exprError{runes(start - 2), "${ without closing }"})
			return m, errs
		}
		x, xerrs := c.compile(s[start : start+end])
		for _, e := range xerrs {
			errs = append(errs, exprError{runes(start) + e.offset, e.msg})
		}
		if x != nil {
			if !printableType(x.out) {
				errs = append(errs, exprError{runes(start), "has type " + cel.FormatCELType(x.out) + ", which can't be converted to text"})
			}
			m.parts = append(m.parts, piece{x: x})
		}
		at = start + end + 1
	}
}

// closingBrace returns the index of the } that ends an expression, skipping nested
// braces and quoted texts, or -1.
func closingBrace(s string) int {
	depth := 0
	var quote byte
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case quote != 0:
			if c == '\\' {
				i++
			} else if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'':
			quote = c
		case c == '{':
			depth++
		case c == '}' && depth > 0:
			depth--
		case c == '}':
			return i
		}
	}
	return -1
}

func printableType(t *cel.Type) bool {
	switch t.Kind() {
	case types.StringKind, types.IntKind, types.UintKind, types.DoubleKind, types.BoolKind, types.DurationKind, types.TimestampKind:
		return true
	}
	return t.IsExactType(cel.OptionalType(cel.StringType)) || t.IsExactType(cel.ListType(cel.StringType)) || t.IsExactType(celType(event.TypeStringMap))
}

// fields returns the fields the message reads.
func (m *message) fields() []*event.Field {
	var out []*event.Field
	for _, p := range m.parts {
		if p.x != nil {
			out = append(out, p.x.fields...)
		}
	}
	return out
}

// render writes the message for the activation's event into buf and returns
// it as bounded, printable text. A part that can't be evaluated shows as "?",
// and failed is the number of such parts.
func (m *message) render(a *activation, buf []byte) (s string, scratch []byte, failed int) {
	buf = buf[:0]
	for _, p := range m.parts {
		switch {
		case p.x == nil:
			buf = append(buf, p.literal...)
		case p.x.direct.text != nil:
			buf = p.x.direct.text(a.ev, buf)
		default:
			v, _, err := p.x.program.Eval(a)
			if err != nil {
				failed++
				buf = append(buf, '?')
				continue
			}
			buf = appendCEL(buf, v)
		}
	}
	return display.Bounded(string(buf), MaxMessage), buf, failed
}

// appendCEL adds the text form of an expression's value.
func appendCEL(dst []byte, v ref.Val) []byte {
	switch v := v.(type) {
	case types.String:
		return append(dst, v...)
	case types.Duration:
		return append(dst, display.Duration(v.Duration)...)
	case types.Timestamp:
		return v.Time.UTC().AppendFormat(dst, time.RFC3339Nano)
	case *types.Optional:
		if !v.HasValue() {
			return dst
		}
		return appendCEL(dst, v.GetValue())
	case traits.Mapper:
		labels := make(map[string]string)
		for it := v.Iterator(); it.HasNext() == types.True; {
			name := it.Next()
			labels[string(appendCEL(nil, name))] = string(appendCEL(nil, v.Get(name)))
		}
		of := event.Value{Labels: labels}
		return of.Append(dst, event.TypeStringMap)
	case traits.Lister:
		for i, it := 0, v.Iterator(); it.HasNext() == types.True; i++ {
			if i > 0 {
				dst = append(dst, ", "...)
			}
			dst = appendCEL(dst, it.Next())
		}
		return dst
	}
	if s, ok := v.ConvertToType(types.StringType).(types.String); ok {
		return append(dst, s...)
	}
	return append(dst, '?')
}
