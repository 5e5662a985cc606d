package operation

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kernosis/kernosis/collector/display"
)

// Kind is the type of a parameter, which its text must match.
type Kind string

// Kinds of parameters.
const (
	String   Kind = "string"   // at most MaxText bytes of printable UTF-8, on one line
	Integer  Kind = "integer"  // decimal digits, 63 bits
	Boolean  Kind = "boolean"  // true or false
	Duration Kind = "duration" // like 1m30s, not negative
	Bytes    Kind = "bytes"    // whole bytes as a quantity: 512Ki, 1.5Gi, 4k
	Address  Kind = "address"  // an IP address, with a zone (fe80::1%eth0) if it needs one
	Enum     Kind = "enum"     // one of Parameter.Values
)

const (
	// MaxText bounds the text of a parameter: more than any name or command line that an operation
	// needs.
	MaxText = 4096
	// MaxQuoted bounds what an error quotes of a text.
	MaxQuoted = 80
	// maxQuantity bounds the text of a quantity: all digits of 64 bits, a point and a unit.
	maxQuantity = 32
)

// Parameter is one input of a built-in.
type Parameter struct {
	Name     string // camelCase; see docs/operations.md for the common ones
	Doc      string
	Kind     Kind
	Required bool
	Default  string   // used if no value is given and it isn't Required
	Values   []string // of an Enum
	// Min and Max bound an Integer, a Duration (in nanoseconds), Bytes, and the length of
	// a String in bytes. Max 0: no bound.
	Min, Max int64
}

// Values are parameters by name, as text.
type Values map[string]string

// Fill returns the values for a call: for each declared parameter the first source that has it,
// else its default. An empty text counts as missing, so that callers need not leave out unknown
// facts. The error lists all problems, each with the parameter's name.
func (b *Builtin) Fill(sources ...map[string]string) (Values, error) {
	values := make(Values, len(b.Parameters))
	var wrong []string
	for i := range b.Parameters {
		p := &b.Parameters[i]
		text := ""
		for _, s := range sources {
			text = cmp.Or(text, s[p.Name])
		}
		switch {
		case text != "":
		case p.Required:
			wrong = append(wrong, "parameter "+p.Name+" is required")
			continue
		default:
			text = p.Default
		}
		if err := p.Check(text); err != nil {
			wrong = append(wrong, fmt.Sprintf("parameter %s: %s", p.Name, err))
			continue
		}
		values[p.Name] = text
	}
	if len(wrong) > 0 {
		return nil, fmt.Errorf("%s: %s", b.Name, strings.Join(wrong, "; "))
	}
	return values, nil
}

// Check returns an error if text is not a valid value of the parameter. An empty text is valid.
func (p *Parameter) Check(text string) error {
	if text == "" {
		return nil
	}
	if len(text) > MaxText {
		return fmt.Errorf("%d bytes, at most %d", len(text), MaxText)
	}
	switch p.Kind {
	case Integer:
		n, err := parseInteger(text)
		return p.ranged(n, err, decimal)
	case Duration:
		d, err := time.ParseDuration(text)
		if err != nil {
			err = fmt.Errorf("%s: want a duration such as 1m30s", Quoted(text))
		}
		return p.ranged(int64(d), err, func(n int64) string { return time.Duration(n).String() })
	case Bytes:
		n, err := parseBytes(text)
		return p.ranged(n, err, byteText)
	case Boolean:
		if text != "true" && text != "false" {
			return fmt.Errorf("%s: want true or false", Quoted(text))
		}
	case Address:
		return checkAddress(text)
	case Enum:
		if !slices.Contains(p.Values, text) {
			return fmt.Errorf("%s: want one of %s", Quoted(text), strings.Join(p.Values, ", "))
		}
	default:
		if display.Safe(text, len(text)) != text {
			return fmt.Errorf("%s contains unprintable characters", Quoted(text))
		}
		return p.ranged(int64(len(text)), nil, func(n int64) string { return decimal(n) + " bytes" })
	}
	return nil
}

// Form describes the values that a parameter accepts: "duration, at most 1m; default 5s".
func (p *Parameter) Form() string {
	text := string(p.Kind)
	switch p.Kind {
	case Enum:
		text = strings.Join(p.Values, ", ")
	case Integer:
		text += bounds(p, decimal)
	case Duration:
		text += bounds(p, func(n int64) string { return display.Exact(time.Duration(n)) })
	case Bytes:
		text += bounds(p, byteText)
	case String:
		text += bounds(p, func(n int64) string { return decimal(n) + " bytes" })
	}
	switch {
	case p.Required:
		text += "; required"
	case p.Default != "":
		text += "; default " + p.Default
	}
	return text
}

func bounds(p *Parameter, text func(int64) string) string {
	switch {
	case p.Min > 0 && p.Max > 0:
		return " from " + text(p.Min) + " to " + text(p.Max)
	case p.Max > 0:
		return ", at most " + text(p.Max)
	case p.Min > 0:
		return ", at least " + text(p.Min)
	}
	return ""
}

// ranged returns err, or an error if n is out of bounds; text formats n.
func (p *Parameter) ranged(n int64, err error, text func(int64) string) error {
	switch {
	case err != nil:
		return err
	case n < 0:
		return fmt.Errorf("%s is negative", text(n))
	case n < p.Min:
		return fmt.Errorf("%s is less than %s", text(n), text(p.Min))
	case p.Max > 0 && n > p.Max:
		return fmt.Errorf("%s is more than %s", text(n), text(p.Max))
	}
	return nil
}

func Quoted(text string) string { return `"` + display.Safe(text, MaxQuoted) + `"` }

func decimal(n int64) string { return strconv.FormatInt(n, 10) }

func byteText(n int64) string { return resource.NewQuantity(n, resource.BinarySI).String() }

// parseInteger accepts one form of a number only, so that equal numbers are equal texts except for
// leading zeros.
func parseInteger(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return 0, fmt.Errorf("%s is out of range", Quoted(text))
	case err != nil || text[0] == '+':
		return 0, fmt.Errorf("%s: want a whole number", Quoted(text))
	}
	return n, nil
}

// parseBytes parses a quantity. It refuses exponents, because comparing one like 1e999999999 could
// be expensive.
func parseBytes(text string) (int64, error) {
	no := fmt.Errorf("%s: want a number of bytes such as 512Ki", Quoted(text))
	unit := strings.TrimLeft(text, "-.0123456789")
	if len(text) > maxQuantity || len(unit) == len(text) || !slices.Contains([]string{"", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"}, unit) {
		return 0, no
	}
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return 0, no
	}
	n := q.Value()
	switch {
	case q.Sign() < 0:
		return -1, fmt.Errorf("%s is negative", Quoted(text))
	// resource.Quantity caps values at what 64 bits hold.
	case q.CmpInt64(math.MaxInt64) >= 0:
		return 0, fmt.Errorf("%s is out of range", Quoted(text))
	case q.CmpInt64(n) != 0:
		return 0, fmt.Errorf("%s: want a whole number of bytes", Quoted(text))
	}
	return n, nil
}

// checkAddress returns an error if text is not an IP address. A zone must be the name of a network
// device.
func checkAddress(text string) error {
	a, err := netip.ParseAddr(text)
	const longest = 15 // IFNAMSIZ less the NUL
	if err != nil || len(a.Zone()) > longest || strings.ContainsAny(a.Zone(), "/: ") || display.Safe(text, len(text)) != text {
		return fmt.Errorf("%s: want an IP address", Quoted(text))
	}
	return nil
}

// Int returns an Integer; 0 if it is empty.
func (v Values) Int(name string) int64 {
	n, _ := strconv.ParseInt(v[name], 10, 64) // checked by Fill
	return n
}

// Bool returns a Boolean; false if it is empty.
func (v Values) Bool(name string) bool { return v[name] == "true" }

// Duration returns a Duration; 0 if it is empty.
func (v Values) Duration(name string) time.Duration {
	d, _ := time.ParseDuration(v[name]) // checked by Fill
	return d
}

// Bytes returns a quantity in bytes; 0 if it is empty.
func (v Values) Bytes(name string) int64 {
	n, _ := parseBytes(v[name]) // checked by Fill
	return n
}

// Addr returns an Address; the zero one if it is empty.
func (v Values) Addr(name string) netip.Addr {
	a, _ := netip.ParseAddr(v[name]) // checked by Fill
	return a
}
