package detector

import (
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/kernosis/kernosis/collector/event"
)

// Type is the type of a field in expressions.
type Type string

// The types of fields. All numbers are int; one beyond 2⁶³-1 reads as 2⁶³-1.
const (
	String         Type = "string"
	Int            Type = "int"
	Bool           Type = "bool"
	Duration       Type = "duration"
	Timestamp      Type = "timestamp"
	OptionalString Type = "optional string"
	StringList     Type = "list of strings"
	StringMap      Type = "map of strings"
)

// Field is one fact that rules can read: a variable in expressions, a part of
// a group, a ${…} in a message. In an event that does not carry it, a field is
// the zero value of its type (empty text, 0, false, no optional, nothing in it).
type Field struct {
	Name  string
	Type  Type
	Kinds []event.Kind // the kinds that carry it, sorted
	Doc   string

	// few says that the field takes few different values (error names, kinds),
	// so that their CEL form is worth keeping.
	few  bool
	read func(e *event.Event) value
}

// CarriedBy reports whether events of the kind can have the field.
func (f *Field) CarriedBy(k event.Kind) bool {
	_, ok := slices.BinarySearch(f.Kinds, k)
	return ok
}

// Groupable reports whether the field may stand in groupBy: one whose text is
// short and whose value names something, not one that measures.
func (f *Field) Groupable() bool { return f.Type == String || f.Type == Int || f.Type == Bool }

// value is a field's value before it becomes CEL or text, held without
// allocating. Which part is set is told by the field's type.
type value struct {
	text    string
	number  int64 // Int; Duration in nanoseconds; Bool 0 or 1
	present bool  // OptionalString
	list    []string
	labels  map[string]string // StringMap
	time    time.Time
}

// maxText bounds a text field in bytes, as seen by rules. The longest honest
// one is a mount point (PATH_MAX); the cost estimate of expressions rests on it.
const maxText = 4096

// maxList bounds a list field.
const maxList = 64

func text(s string) value {
	if len(s) > maxText {
		end := maxText
		for end > maxText-utf8.UTFMax && !utf8.RuneStart(s[end]) {
			end--
		}
		s = s[:end]
	}
	return value{text: s}
}

func optional(s string) value {
	v := text(s)
	v.present = s != ""
	return v
}

func number[T uint32 | uint64 | int16](n T) value {
	const maxInt64 = 1<<63 - 1
	if uint64(n) > maxInt64 && n > 0 {
		return value{number: maxInt64}
	}
	return value{number: int64(n)}
}

func boolean(b bool) value {
	if b {
		return value{number: 1}
	}
	return value{}
}

func duration(d event.Duration) value { return value{number: int64(d)} }

// appendText adds the value as shown in messages and groups.
func (v *value) appendText(dst []byte, t Type) []byte {
	switch t {
	case Int:
		return strconv.AppendInt(dst, v.number, 10)
	case Bool:
		return strconv.AppendBool(dst, v.number != 0)
	case Duration:
		return append(dst, humanDuration(time.Duration(v.number))...)
	case Timestamp:
		return v.time.UTC().AppendFormat(dst, time.RFC3339Nano)
	case StringList:
		for i, s := range v.list {
			if i > 0 {
				dst = append(dst, ", "...)
			}
			dst = append(dst, s...)
		}
		return dst
	case StringMap:
		return appendLabels(dst, v.labels)
	}
	return append(dst, v.text...)
}
