// Package logs holds what log sources have in common: the [Line] and the
// [Loss].
//
// It is a leaf. The sources (packages kmsg, file and journald below it) read
// lines; the matcher looks at each of them, and only a line that a rule's
// pattern matches becomes an Event. So a line is a cheap thing that lives for
// one call and is written over by the next one.
//
// # Contract of a source
//
// Each source has a Reader with
//
//	Run(ctx context.Context, handle func(logs.Item) error) error
//	Position() logs.Position
//
// Run blocks, hands items over one at a time in the order in which they were
// logged, and returns nil when ctx ends, or the error of handle. What was lost
// comes in the same stream, at its place: nothing is dropped silently. A Reader
// runs once.
//
// A [Position] says up to where items were handed over and handle returned nil.
// It may be read at any time, by any goroutine. A Reader that is given the
// Position of an earlier one goes on behind it, also after a restart of this
// process or of the machine: nothing is handed over twice, and what can't be
// had any more is reported as a Loss.
package logs
