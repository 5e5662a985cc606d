package logs

// Reason says why lines were lost. Reasons are API: metrics and rules name them.
type Reason string

// The reasons of a Loss.
const (
	// Overrun: the log was written over before it was read. The number is exact.
	Overrun Reason = "overrun"
	// Truncated: a file was emptied, and no copy of what it held was found.
	Truncated Reason = "truncated"
	// Rotated: what follows the saved position was rotated away or vacuumed, or is
	// in a rotated file that can't be read.
	Rotated Reason = "rotated"
	// TooLong: the lines were longer than the bound. They were handed over
	// without their ends, except by kmsg, which can't.
	TooLong Reason = "too-long"
	// Malformed: the lines could not be parsed.
	Malformed Reason = "malformed"
	// Suppressed: the log's own writer dropped the lines (journald's rate limit,
	// kernel messages that journald missed).
	Suppressed Reason = "suppressed"
	// BadPosition: the saved position is no position of this log, so the start
	// was made as without one.
	BadPosition Reason = "bad-position"
)

// Loss reports that lines were lost, at the place in the stream where they would
// have come.
type Loss struct {
	Reason Reason
	// Lines is how many; 0: nobody knows, and possibly none.
	Lines uint64
	// Bytes is how much of the text was lost, where that is known: the ends of
	// lines that were too long.
	Bytes uint64
}

// Item is a line or a loss: exactly one of them is not nil.
type Item struct {
	Line *Line
	Loss *Loss
}

// Position is where a reader is, as text to be kept and to be given to the next
// reader of the same log; "": none. What it holds is the source's business.
type Position string
