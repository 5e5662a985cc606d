package document

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kernosis/kernosis/collector/display"
)

// Error is one mistake in a file.
type Error struct {
	File   string
	Line   int    // from 1; 0 if the mistake concerns the whole file
	Column int    // from 1, in characters
	Field  string // path of the key, such as rules[2].when; empty for a whole document
	Msg    string
}

// maxShown bounds the text of an error: parts of it come from the file.
const maxShown = 4096

// Error returns "file:line:column: field: text" without the parts that are unknown. Terminal
// control characters are escaped, because parsers quote the file as it is.
func (e *Error) Error() string {
	where := display.Safe(e.File, maxShown)
	if e.Line > 0 {
		where += fmt.Sprintf(":%d", e.Line)
		if e.Column > 0 {
			where += fmt.Sprintf(":%d", e.Column)
		}
	}
	text := display.Safe(e.Msg, maxShown)
	for _, before := range []string{display.Safe(e.Field, maxShown), where} {
		if before != "" {
			text = before + ": " + text
		}
	}
	return text
}

// Errors is every mistake found, ordered by file and line.
type Errors []*Error

// Add adds a mistake in a field. The reader of the file adds the position.
func (es *Errors) Add(field, format string, args ...any) {
	*es = append(*es, &Error{Field: field, Msg: fmt.Sprintf(format, args...)})
}

// maxErrors bounds the reported mistakes: nobody reads more than 100.
const maxErrors = 100

// Error returns a line for each mistake.
func (es Errors) Error() string {
	var lines []string
	for _, e := range es[:min(len(es), maxErrors)] {
		lines = append(lines, e.Error())
	}
	if more := len(es) - maxErrors; more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(lines, "\n")
}

// Unwrap lets errors.As find each mistake.
func (es Errors) Unwrap() []error {
	out := make([]error, len(es))
	for i, e := range es {
		out[i] = e
	}
	return out
}

// Sort orders the mistakes of each file by position, and keeps the order of files.
func (es Errors) Sort() {
	order := make(map[string]int)
	for _, e := range es {
		if _, ok := order[e.File]; !ok {
			order[e.File] = len(order)
		}
	}
	slices.SortStableFunc(es, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(order[a.File], order[b.File]), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}

// Err returns the mistakes as an error, or nil if there are none.
func (es Errors) Err() error {
	if len(es) == 0 {
		return nil
	}
	return es
}

const (
	mostNear = 3  // suggestions per mistake
	longest  = 64 // longer names are not compared: the distance costs length × length
)

// Suggest returns the known names that are most similar to a wrong one, as `, did you mean "x" or
// "y"?`: the names with the smallest edit distance, or else the names that contain it. It returns
// "" if there are none.
func Suggest[T ~string](wrong T, known []T) string {
	if len(wrong) > longest {
		return ""
	}
	var near, around []string
	least := 1 + len(wrong)/3
	for _, name := range known {
		k := string(name)
		if len(k) > longest {
			continue
		}
		switch d := distance(string(wrong), k); {
		case d <= least && 2*d <= len(k):
			if d < least {
				near, least = nil, d
			}
			near = append(near, strconv.Quote(k))
		case len(wrong) > 3 && strings.Contains(k, string(wrong)):
			around = append(around, strconv.Quote(k)) // for a name of which a part was left out, such as accept-queue
		}
	}
	if len(near) == 0 {
		near = around
	}
	if len(near) == 0 {
		return ""
	}
	slices.Sort(near)
	near = slices.Compact(near)
	return ", did you mean " + strings.Join(near[:min(mostNear, len(near))], " or ") + "?"
}

// distance returns the number of characters to change, insert or delete (Levenshtein), ignoring
// case: a wrong capital is the most common typo.
func distance(a, b string) int {
	a, b = strings.ToLower(a), strings.ToLower(b)
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, change)
		}
	}
	return row[len(b)]
}
