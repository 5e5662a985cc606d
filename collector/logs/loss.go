package logs

// Reason is why lines were lost. Reasons are API: metrics and rules name them.
type Reason string

// The reasons for a Loss.
const (
	// Overrun: the log was overwritten before it was read. The number is exact.
	Overrun Reason = "overrun"
	// Truncated: a file was truncated, and no copy of its contents was found.
	Truncated Reason = "truncated"
	// Rotated: what follows the saved position was rotated away or vacuumed, or is in a rotated
	// file that can't be read.
	Rotated Reason = "rotated"
	// TooLong: the lines were longer than the limit. They were handed over without their ends,
	// except by kmsg, which can't.
	TooLong Reason = "too-long"
	// Malformed: the lines could not be parsed.
	Malformed Reason = "malformed"
	// Suppressed: the log's own writer dropped the lines (journald's rate limit,
	// kernel messages that journald missed).
	Suppressed Reason = "suppressed"
	// BadPosition: the saved position is not a position of this log, so reading began as without
	// one.
	BadPosition Reason = "bad-position"
)

// Loss reports lost lines, at the place in the stream where they would have come.
type Loss struct {
	Reason Reason
	// Lines is the number of lost lines; 0 if unknown, possibly none.
	Lines uint64
	// Bytes is how much text was lost, if known: the ends of lines that were too long.
	Bytes uint64
}

// Item is a line or a loss: exactly one of them is non-nil.
type Item struct {
	Line *Line
	Loss *Loss
}

// Position is a reader's place in a log, as text that can be saved and given to the next reader of
// the same log; "" if there is none. Its format is up to the source.
type Position string
