package lint

import (
	"fmt"
	"strings"
)

// Level is how bad a finding is.
type Level string

// Levels. Error: it never works. Warning: it works only partly, or misleads. Info: for
// information only.
const (
	Error   Level = "error"
	Warning Level = "warning"
	Info    Level = "info"
)

// Codes of findings. They are API: scripts select by them.
const (
	Dead             = "dead-pattern"        // matches no line of the kernels, although they log that fault
	NotThisKernel    = "not-of-this-kernel"  // the kernel has no format string for the lines that the pattern matches
	OldWording       = "old-wording"         // matches the lines of older kernels only
	MissingForm      = "missing-form"        // matches some, but not every, line of the fault
	EndAnchor        = "end-anchor"          // text follows the match, so it doesn't end where the buffer does
	Buffer           = "buffer-too-small"    // spans more lines than are kept
	Duplicate        = "duplicate"           // another rule has the same pattern
	RenamedProgram   = "renamed-program"     // matches a program name that has changed
	HealthyLine      = "matches-healthy"     // matches a line of a healthy machine
	Costly           = "costly-pattern"      // matching it takes long
	BadPattern       = "bad-pattern"         // can't be compiled
	Unjudged         = "not-judged"          // the corpus has no related line
	ReasonIsHealthy  = "reason-is-healthy"   // a problem has the same reason as the healthy condition
	ReasonCondition  = "reason-is-condition" // a reason is the name of a condition
	Unset            = "unset-condition"     // no rule sets the condition
	AlertReason      = "alert-on-reason"     // an alert names a reason where a condition type is meant
	AlertCondition   = "alert-on-condition"  // an alert names a condition type where a reason is meant
	AlertUnknown     = "alert-unknown"       // an alert names a condition or reason that no rule has
	AlertCombination = "alert-combination"   // an alert's condition and reason exist, but not together
)

// Finding is one result of a check.
type Finding struct {
	File    string `json:"file"`
	Line    int    `json:"line"`
	Level   Level  `json:"level"`
	Code    string `json:"code"`
	Message string `json:"message"`
	// Suggest are lines that the pattern should match, with their kernels.
	Suggest []string `json:"suggest,omitempty"`
}

// String returns "file:line: level: message [code]", followed by one line per suggestion.
func (f Finding) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s:%d: %s: %s [%s]", f.File, f.Line, f.Level, f.Message, f.Code)
	for _, s := range f.Suggest {
		b.WriteString("\n    ")
		b.WriteString(s)
	}
	return b.String()
}
