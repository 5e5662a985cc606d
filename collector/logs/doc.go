// Package logs holds what log sources have in common: the [Line] and the [Loss].
//
// It is a leaf. The sources (packages kmsg, file and journald below it) read lines, and only a line
// that matches a rule's pattern becomes an Event. So a line is cheap: it is valid for one call, and
// the next one overwrites it.
//
// # Contract of a source
//
// Each source has a Reader with
//
//	Run(ctx context.Context, handle func(logs.Item) error) error
//	Position() logs.Position
//
// Run blocks, hands items over one at a time in the order in which they were logged, and returns nil
// when ctx ends, or the error of handle. Losses come in the same stream, at their place. A Reader
// runs once.
//
// A [Position] marks the end of what was handed over and for which handle returned nil. Any
// goroutine may read it at any time. A Reader that is given the Position of an earlier one continues
// after it, also after a restart of this process or of the machine: nothing is handed over twice,
// and lines that are no longer available are reported as a Loss.
package logs
