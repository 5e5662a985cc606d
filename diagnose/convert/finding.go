package convert

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kernosis/kernosis/collector/display"
)

// Finding is something about the input that a person must know.
type Finding struct {
	// Lost: it is not in the output. Else it is, and means something else or needs a look.
	Lost bool

	File     string
	Line     int
	Document int    // of the file, from 1
	Kind     string // of the object
	Name     string
	Field    string // path as spec.processor.function; empty: the whole object
	Reason   string
}

// String returns a line of text. What a terminal would obey is escaped.
func (f *Finding) String() string {
	const most = 1024
	what := "note"
	if f.Lost {
		what = "lost"
	}
	parts := []string{fmt.Sprintf("%s:%d: %s: document %d: %s", display.Safe(f.File, most), f.Line, what, f.Document, display.Safe(f.Kind+" "+f.Name, most))}
	if f.Field != "" {
		parts = append(parts, display.Safe(f.Field, most))
	}
	return strings.Join(append(parts, display.Safe(f.Reason, most)), ": ")
}

// Lost reports whether anything of the input is not in the output.
func (r *Result) Lost() bool {
	return slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Lost })
}
