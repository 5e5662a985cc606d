package logpattern

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Bounds of patterns. Each is far above what rules for a node need and low
// enough that no set makes one line cost more than milliseconds by accident.
const (
	// MaxPatterns is the most that a Set holds: the rules' bound (1000) four times.
	MaxPatterns = 4096
	// MaxExpr is the longest expression, in bytes, as of a rule's CEL.
	MaxExpr = 4096
	// MaxLines is the most lines that a pattern may span: a kernel's OOM report
	// with its task list has about as many.
	MaxLines = 100
	// NPDLines is how many lines an AnchorEnd pattern sees unless it says so:
	// bufferSize's default in NPD.
	NPDLines = 10

	// maxName bounds a name, which becomes part of each event.
	maxName = 256
	// maxLogs bounds the list of a pattern's logs.
	maxLogs = 64
	// maxLogName bounds the name of a log.
	maxLogName = 63
	// maxCaptures is how many named groups are reported.
	maxCaptures = 16
	// maxProgram is the most instructions of one compiled expression; NPD's have
	// about 80. A run takes at worst their number times the length of the text:
	// the worst that was found takes 45 ms for a line of MaxLine bytes, 0.5 s for
	// maxWindow.
	maxProgram = 1000
	// maxPrograms bounds the instructions of a whole set, 40 bytes each: 1000
	// patterns like NPD's have a sixth of it.
	maxPrograms = 500_000
)

// Pattern is one expression to look for. It is data; [Compile] checks it.
type Pattern struct {
	// Name distinguishes patterns, also in mistakes; unique in a Set.
	Name string
	// Expr is RE2. Named groups become captures.
	Expr string
	// Lines is how many of the last lines the pattern may span. 0: one more than
	// the newlines written in Expr; NPDLines with AnchorEnd.
	Lines int
	// AnchorEnd asks for NPD's way to match, see the package's comment.
	AnchorEnd bool
	// Logs lists the logs that the pattern is for, by the names given to
	// [Set.NewMatcher]; empty: all.
	Logs []string
}

// Error is one mistake in a pattern. [Compile] joins them; errors.As finds the first.
type Error struct {
	Index int    // in what Compile got
	Name  string // the pattern's, may be empty
	Err   error
}

func (e *Error) Error() string {
	if e.Name == "" {
		return fmt.Sprintf("pattern %d: %v", e.Index+1, e.Err)
	}
	return fmt.Sprintf("pattern %q: %v", e.Name, e.Err)
}

// Unwrap returns the mistake without the pattern's name.
func (e *Error) Unwrap() error { return e.Err }

// Set is a checked, compiled list of patterns with the automaton over their
// literals. It is immutable and safe for concurrent use.
type Set struct {
	patterns []*compiled
	literals *automaton
	// One bit for each pattern: those to run on every line, and those whose
	// literal may stand in an earlier line of what they span.
	always, aged bitset
}

// Compile checks and compiles patterns. The error joins an [*Error] for every
// mistake of every pattern, or reports that all together are too many; there is then
// no Set. An empty list is a Set that matches nothing.
func Compile(patterns []Pattern) (*Set, error) {
	if len(patterns) > MaxPatterns {
		return nil, fmt.Errorf("%d patterns: more than %d", len(patterns), MaxPatterns)
	}
	s := &Set{
		patterns: make([]*compiled, len(patterns)),
		always:   newBitset(len(patterns)),
		aged:     newBitset(len(patterns)),
	}
	names := make(map[string]int, len(patterns))
	instructions := 0
	var mistakes []error
	for i, p := range patterns {
		wrong := func(err error) { mistakes = append(mistakes, &Error{Index: i, Name: p.Name, Err: err}) }
		if first, ok := names[p.Name]; ok && p.Name != "" {
			wrong(fmt.Errorf("name: also that of pattern %d", first+1))
		} else {
			names[p.Name] = i
		}
		for _, err := range p.check() {
			wrong(err)
		}
		c, err := compilePattern(p)
		if err != nil {
			wrong(err)
			continue
		}
		if instructions += c.size; instructions > maxPrograms {
			wrong(fmt.Errorf("expression: this and the patterns before it compile to more than %d instructions", maxPrograms))
			break
		}
		s.patterns[i] = c
	}
	if len(mistakes) > 0 {
		return nil, errors.Join(mistakes...)
	}
	literals := make([][]string, len(patterns))
	for i, c := range s.patterns {
		literals[i] = c.literals
		if len(c.literals) == 0 {
			s.always.set(i)
		} else if c.aged {
			s.aged.set(i)
		}
	}
	var err error
	if s.literals, err = newAutomaton(literals); err != nil {
		return nil, err
	}
	return s, nil
}

// check returns what is wrong with everything but the expression.
func (p *Pattern) check() []error {
	var errs []error
	switch {
	case p.Name == "":
		errs = append(errs, errors.New("name: missing"))
	case len(p.Name) > maxName:
		errs = append(errs, fmt.Errorf("name: longer than %d bytes", maxName))
	}
	if p.Lines < 0 || p.Lines > MaxLines {
		errs = append(errs, fmt.Errorf("lines: %d is not in 0 to %d", p.Lines, MaxLines))
	}
	if len(p.Logs) > maxLogs {
		errs = append(errs, fmt.Errorf("logs: more than %d", maxLogs))
	}
	if slices.Contains(p.Logs, "") {
		errs = append(errs, errors.New("logs: an empty name"))
	}
	return errs
}

// Len returns the number of patterns.
func (s *Set) Len() int { return len(s.patterns) }

// Pattern returns the pattern of an index as [Hit] has it, Lines filled in.
func (s *Set) Pattern(i int) Pattern { return s.patterns[i].Pattern }

// Unfiltered returns the indexes of the patterns that no literal was found for,
// such as `\d+ errors?|\w+`: each costs its expression on every line.
func (s *Set) Unfiltered() []int { return s.always.list() }

// ValidLog reports whether a log may have a name: it is a file's name and a part of a stem.
func ValidLog(name string) bool {
	if name == "" || len(name) > maxLogName || strings.ContainsRune("._-", rune(name[0])) {
		return false
	}
	for _, c := range []byte(name) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}
