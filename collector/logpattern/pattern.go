package logpattern

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
)

// Bounds of patterns. Each is far above what rules for a node need, and low enough that no set
// makes a line cost more than milliseconds by accident.
const (
	// MaxPatterns is the maximum size of a Set: four times the bound on rules (1000).
	MaxPatterns = 4096
	// MaxExpr is the longest expression, in bytes, as for a rule's CEL.
	MaxExpr = 4096
	// MaxLines is the most lines that a pattern may span: a kernel's OOM report with its task list.
	MaxLines = 100
	// NPDLines is the default number of lines of an AnchorEnd pattern: NPD's bufferSize.
	NPDLines = 10

	// maxName bounds a name, which becomes part of each event.
	maxName = 256
	// maxLogs bounds the list of a pattern's logs.
	maxLogs = 64
	// maxCaptures is how many named groups are reported.
	maxCaptures = 16
	// maxProgram is the maximum number of instructions of a compiled expression; NPD's have about
	// 80. The worst case of a run is proportional to this number times the length of the text: the
	// slowest expression found takes 45 ms for a line of MaxLine bytes, and 0.5 s for maxWindow.
	maxProgram = 1000
	// maxPrograms bounds the instructions of a set, 40 bytes each: six times 1000 patterns like NPD's.
	maxPrograms = 500_000
)

// Pattern is one expression to search for. It is plain data; [Compile] checks it.
type Pattern struct {
	// Name identifies a pattern, also in errors; unique in a Set.
	Name string
	// Expr is RE2. Named groups become captures.
	Expr string
	// Lines is how many of the last lines the pattern may span. 0: one more than
	// the newlines written in Expr; NPDLines with AnchorEnd.
	Lines int
	// AnchorEnd selects NPD's way to match; see the package's comment.
	AnchorEnd bool
	// Logs are the logs that the pattern is for, by names of [Set.NewMatcher]; empty: all but
	// event.CrashLog.
	Logs []string
}

// Error is one mistake in a pattern. [Compile] joins them; errors.As finds the first one.
type Error struct {
	Index int    // in Compile's argument
	Name  string // of the pattern, may be empty
	Err   error
}

func (e *Error) Error() string {
	if e.Name == "" {
		return fmt.Sprintf("pattern %d: %v", e.Index+1, e.Err)
	}
	return fmt.Sprintf("pattern %q: %v", e.Name, e.Err)
}

// Unwrap returns the error without the pattern's name.
func (e *Error) Unwrap() error { return e.Err }

// Set is a checked, compiled list of patterns with the automaton over their
// literals. It is immutable and safe for concurrent use.
type Set struct {
	patterns []*compiled
	literals *automaton
	// One bit per pattern: it runs on every line; its literal may be in an earlier line that it spans.
	always, aged bitset
}

// Compile checks and compiles patterns. The error joins an [*Error] for every mistake of every pattern,
// or reports that there are too many. An empty list results in a Set that matches nothing.
func Compile(patterns []Pattern) (*Set, error) {
	if len(patterns) > MaxPatterns {
		return nil, fmt.Errorf("%d patterns: at most %d are allowed", len(patterns), MaxPatterns)
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
			wrong(fmt.Errorf("name: already used by pattern %d", first+1))
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

// check returns the mistakes in everything but the expression.
func (p *Pattern) check() []error {
	var errs []error
	switch {
	case p.Name == "":
		errs = append(errs, errors.New("name: missing"))
	case len(p.Name) > maxName:
		errs = append(errs, fmt.Errorf("name: longer than %d bytes", maxName))
	}
	if p.Lines < 0 || p.Lines > MaxLines {
		errs = append(errs, fmt.Errorf("lines: %d: want 0 to %d", p.Lines, MaxLines))
	}
	if len(p.Logs) > maxLogs {
		errs = append(errs, fmt.Errorf("logs: more than %d", maxLogs))
	}
	if slices.Contains(p.Logs, "") {
		errs = append(errs, errors.New("logs: a name is empty"))
	}
	return errs
}

// Len returns the number of patterns.
func (s *Set) Len() int { return len(s.patterns) }

// Pattern returns the pattern with an index as in [Hit], with Lines filled in.
func (s *Set) Pattern(i int) Pattern { return s.patterns[i].Pattern }

// Unfiltered returns the indexes of the patterns without a literal: they run on every line.
func (s *Set) Unfiltered() (all []int) {
	for i, c := range s.patterns {
		if len(c.literals) == 0 {
			all = append(all, i)
		}
	}
	return all
}

// ValidLog reports whether name is valid for a log: it becomes a file name and part of a stem.
func ValidLog(name string) bool { return logName.MatchString(name) }

var logName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`) //nolint:gochecknoglobals // a constant
