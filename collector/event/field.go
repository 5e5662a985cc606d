package event

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/kernosis/kernosis/collector/display"
)

// FieldType is the type of a field in expressions.
type FieldType string

// The types of fields. All numbers are int; values above 2⁶³-1 read as 2⁶³-1.
const (
	TypeString         FieldType = "string"
	TypeInt            FieldType = "int"
	TypeBool           FieldType = "bool"
	TypeDuration       FieldType = "duration"
	TypeTimestamp      FieldType = "timestamp"
	TypeOptionalString FieldType = "optional string"
	TypeStringList     FieldType = "list of strings"
	TypeStringMap      FieldType = "map of strings"
)

// Field is one fact that rules can read: a variable in expressions, a part of a group, a ${…} in a
// message. If an event does not carry it, the field is the zero value of its type (empty text, 0,
// false, no optional, an empty list or map).
type Field struct {
	Name  string
	Type  FieldType
	Kinds []Kind // the kinds that carry it, sorted
	Doc   string

	// Few: the field has few different values (error names, kinds), so their CEL values are cached.
	Few  bool
	Read func(e *Event) Value
}

// CarriedBy reports whether events of the kind can have the field.
func (f *Field) CarriedBy(k Kind) bool {
	_, ok := slices.BinarySearch(f.Kinds, k)
	return ok
}

// Groupable reports whether groupBy may use the field: its text must be short and identify
// something rather than measure it.
func (f *Field) Groupable() bool {
	return f.Type == TypeString || f.Type == TypeInt || f.Type == TypeBool
}

// Value is a field's value before it is converted to CEL or text, stored without allocation. Which
// part is set depends on the field's type.
type Value struct {
	Text    string
	Number  int64 // TypeInt; TypeDuration in nanoseconds; TypeBool 0 or 1
	Present bool  // TypeOptionalString
	List    []string
	Labels  map[string]string // TypeStringMap
	Time    time.Time
}

// MaxFieldText bounds a text field in bytes, as rules see it. The longest legitimate one is a mount
// point (PATH_MAX); the cost estimate of expressions depends on it.
const MaxFieldText = 4096

// MaxFieldList bounds a list field.
const MaxFieldList = 64

func text(s string) Value {
	return Value{Text: display.Prefix(s, MaxFieldText)}
}

func optional(s string) Value {
	v := text(s)
	v.Present = s != ""
	return v
}

func number[T uint32 | uint64 | int16](n T) Value {
	const maxInt64 = 1<<63 - 1
	if uint64(n) > maxInt64 && n > 0 {
		return Value{Number: maxInt64}
	}
	return Value{Number: int64(n)}
}

func boolean(b bool) Value {
	if b {
		return Value{Number: 1}
	}
	return Value{}
}

func duration(d Duration) Value { return Value{Number: int64(d)} }

// Append appends the value as shown in messages and groups.
func (v *Value) Append(dst []byte, t FieldType) []byte {
	switch t {
	case TypeInt:
		return strconv.AppendInt(dst, v.Number, 10)
	case TypeBool:
		return strconv.AppendBool(dst, v.Number != 0)
	case TypeDuration:
		return append(dst, display.Duration(time.Duration(v.Number))...)
	case TypeTimestamp:
		return v.Time.UTC().AppendFormat(dst, time.RFC3339Nano)
	case TypeStringList:
		for i, s := range v.List {
			if i > 0 {
				dst = append(dst, ", "...)
			}
			dst = append(dst, s...)
		}
		return dst
	case TypeStringMap:
		return appendLabels(dst, v.Labels)
	}
	return append(dst, v.Text...)
}

// appendLabels appends labels as kubectl shows them, sorted by name.
func appendLabels(dst []byte, labels map[string]string) []byte {
	for i, name := range slices.Sorted(maps.Keys(labels)) {
		if i > 0 {
			dst = append(dst, ", "...)
		}
		dst = append(append(append(dst, name...), '='), labels[name]...)
	}
	return dst
}
