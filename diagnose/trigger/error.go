package trigger

import (
	"fmt"
	"strings"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

// Error is a mistake in a Trigger.
type Error struct {
	Field  string // "spec.sourceTemplate.cronTemplate.schedule"
	Reason string // reason of the condition Accepted, see v1alpha1
	Msg    string
}

func (e *Error) Error() string { return e.Field + ": " + e.Msg }

// Untrusted is the reason of warnings about values that non-administrators control.
const Untrusted = "Untrusted"

// Errors are all mistakes in a Trigger.
type Errors []*Error

func (e Errors) Error() string {
	texts := make([]string, len(e))
	for i := range e {
		texts[i] = e[i].Error()
	}
	return strings.Join(texts, "; ")
}

// Reason returns the reason of the condition Accepted: the one that all mistakes share, or else
// Invalid.
func (e Errors) Reason() string {
	for i := range e {
		if e[i].Reason != e[0].Reason {
			return v1alpha1.ReasonInvalid
		}
	}
	if len(e) == 0 {
		return v1alpha1.ReasonAccepted
	}
	return e[0].Reason
}

// wrong adds a mistake.
func (e *Errors) wrong(field, reason, format string, args ...any) {
	*e = append(*e, &Error{Field: field, Reason: reason, Msg: fmt.Sprintf(format, args...)})
}
