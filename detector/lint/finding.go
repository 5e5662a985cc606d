package lint

import (
	"fmt"
	"strings"
)

// Level is how bad a finding is.
type Level string

// Levels. An error never works, a warning works not everywhere or misleads, an info
// is no finding.
const (
	Error   Level = "error"
	Warning Level = "warning"
	Info    Level = "info"
)

// Codes of findings. They are API: scripts select by them.
const (
	Dead             = "dead-pattern"        // matches no line of the kernels, though there are lines of that fault
	NotThisKernel    = "not-of-this-kernel"  // the kernel has no format string for the lines that it matches
	OldWording       = "old-wording"         // matches the lines of older kernels only
	MissingForm      = "missing-form"        // matches some, but not every, line of the fault
	EndAnchor        = "end-anchor"          // text follows, so that the match doesn't end where the buffer does
	Buffer           = "buffer-too-small"    // spans more lines than are kept
	Duplicate        = "duplicate"           // another rule has the same pattern
	RenamedProgram   = "renamed-program"     // asks for a program that is called otherwise now
	HealthyLine      = "matches-healthy"     // matches a line of a machine that nothing is wrong with
	Costly           = "costly-pattern"      // costs more than others, on each line
	BadPattern       = "bad-pattern"         // can't be compiled
	Unjudged         = "not-judged"          // the corpus has no line that it is about
	ReasonIsHealthy  = "reason-is-healthy"   // the same reason stands for a problem and for none
	ReasonCondition  = "reason-is-condition" // is the name of a condition
	Unset            = "unset-condition"     // no rule sets the condition
	AlertReason      = "alert-on-reason"     // an alert names a reason where a condition type is meant
	AlertCondition   = "alert-on-condition"  // an alert names a condition type where a reason is meant
	AlertUnknown     = "alert-unknown"       // an alert names what no rule has
	AlertCombination = "alert-combination"   // the two exist, but not together
)

// Finding is one thing to be reported.
type Finding struct {
	File    string `json:"file"`
	Line    int    `json:"line"`
	Level   Level  `json:"level"`
	Code    string `json:"code"`
	Message string `json:"message"`
	// Suggest are lines that the pattern should match, with their kernels.
	Suggest []string `json:"suggest,omitempty"`
}

// String returns "file:line: level: message [code]", and a line a suggestion.
func (f Finding) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s:%d: %s: %s [%s]", f.File, f.Line, f.Level, f.Message, f.Code)
	for _, s := range f.Suggest {
		b.WriteString("\n    ")
		b.WriteString(s)
	}
	return b.String()
}
