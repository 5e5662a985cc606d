package operation

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Kind is what the text of a parameter must be.
type Kind string

// Kinds of parameters.
const (
	String   Kind = "string"   // at most maxText bytes of UTF-8 without control characters
	Integer  Kind = "integer"  // decimal, 64 bits, not negative
	Boolean  Kind = "boolean"  // true or false
	Duration Kind = "duration" // as 1m30s, not negative
	Bytes    Kind = "bytes"    // a quantity as 512Ki
	Address  Kind = "address"  // an IP address
	Enum     Kind = "enum"     // one of Parameter.Values
)

// maxText bounds the text of a parameter: more than any name or command line that an
// operation takes.
const maxText = 4096

// Parameter is one input of a built-in.
type Parameter struct {
	Name     string // camelCase; see docs/operations.md for the common ones
	Doc      string
	Kind     Kind
	Required bool
	Default  string   // used where none is given and it isn't Required
	Values   []string // of an Enum
	Max      int64    // of an Integer, Duration (nanoseconds) or Bytes; 0: no bound
}

// Values are parameters by name, as text.
type Values map[string]string

// Fill returns the values for a call: of each declared parameter, the first of the given
// sources that has it, else its default. All that is wrong is told, each with its name.
func (b *Builtin) Fill(sources ...map[string]string) (Values, error) {
	values := make(Values, len(b.Parameters))
	var wrong []string
	for i := range b.Parameters {
		p := &b.Parameters[i]
		text, given := p.Default, false
		for _, s := range sources {
			if t, ok := s[p.Name]; ok {
				text, given = t, true
				break
			}
		}
		if !given && p.Required {
			wrong = append(wrong, fmt.Sprintf("parameter %s is required", p.Name))
			continue
		}
		if given || text != "" {
			if err := p.check(text); err != nil {
				wrong = append(wrong, fmt.Sprintf("parameter %s: %s", p.Name, err))
				continue
			}
		}
		values[p.Name] = text
	}
	if len(wrong) > 0 {
		return nil, fmt.Errorf("%s: %s", b.Name, strings.Join(wrong, "; "))
	}
	return values, nil
}

func (p *Parameter) check(text string) error {
	if len(text) > maxText {
		return fmt.Errorf("%d bytes, at most %d", len(text), maxText)
	}
	n, err := int64(0), error(nil)
	switch p.Kind {
	case Integer:
		n, err = strconv.ParseInt(text, 10, 64)
	case Boolean:
		if text != "true" && text != "false" {
			err = fmt.Errorf("%q is neither true nor false", text)
		}
	case Duration:
		var d time.Duration
		d, err = time.ParseDuration(text)
		n = int64(d)
	case Bytes:
		var q resource.Quantity
		q, err = resource.ParseQuantity(text)
		n = q.Value()
	case Address:
		_, err = netip.ParseAddr(text)
	case Enum:
		if !slices.Contains(p.Values, text) {
			err = fmt.Errorf("%q is none of %s", text, strings.Join(p.Values, ", "))
		}
	default:
		if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			err = fmt.Errorf("%q is not plain text", text)
		}
	}
	switch {
	case err != nil:
		return err
	case n < 0:
		return fmt.Errorf("%s is negative", text)
	case p.Max > 0 && n > p.Max:
		return fmt.Errorf("%s is more than is allowed", text)
	}
	return nil
}

// Int returns an Integer; 0 where it is empty.
func (v Values) Int(name string) int64 {
	n, _ := strconv.ParseInt(v[name], 10, 64) // checked by Fill
	return n
}

// Bool returns a Boolean; false where it is empty.
func (v Values) Bool(name string) bool { return v[name] == "true" }

// Duration returns a Duration; 0 where it is empty.
func (v Values) Duration(name string) time.Duration {
	d, _ := time.ParseDuration(v[name]) // checked by Fill
	return d
}

// Bytes returns a quantity in bytes; 0 where it is empty.
func (v Values) Bytes(name string) int64 {
	q, err := resource.ParseQuantity(v[name])
	if err != nil {
		return 0 // empty: checked by Fill
	}
	return q.Value()
}

// Addr returns an Address; the zero one where it is empty.
func (v Values) Addr(name string) netip.Addr {
	a, _ := netip.ParseAddr(v[name]) // checked by Fill
	return a
}
