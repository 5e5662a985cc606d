package convert

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kernosis/kernosis/collector/display"
)

// Finding is something about the input that the user must know.
type Finding struct {
	// Lost: it is not in the output. Otherwise it is, but has another meaning or needs a check.
	Lost bool

	File     string
	Line     int
	Document int    // in the file, from 1
	Kind     string // of the object
	Name     string
	Field    string // path as spec.processor.function; empty: the whole object
	Reason   string
}

// String returns one line of text. Terminal control characters are escaped.
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

// Lost reports whether anything of the input is missing in the output.
func (r *Result) Lost() bool {
	return slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Lost })
}
