package probe

import "github.com/kernosis/kernosis/collector/event"

// Detail is what a feed knows of one outcome: the part of an event's payload that
// no book-keeping is needed for. Verdict is empty for a success.
type Detail = event.ProbeOutcome
