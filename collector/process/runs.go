package process

import (
	"context"
	"fmt"
	"time"
)

// Runs runs a program again and again, but never beside an earlier run that could not be
// killed: those would pile up for as long as a disk or file server hangs. The zero value is
// ready. It is for one goroutine at a time.
type Runs struct {
	ended <-chan struct{} // of the last run; nil: there was none
	began time.Time
}

// Run is [Program.Run]. While an earlier run has not ended it starts nothing, and returns
// an [ErrStuck] that says so.
func (r *Runs) Run(ctx context.Context, p *Program) Outcome {
	if r.ended != nil {
		select {
		case <-r.ended:
		default:
			return Outcome{Err: fmt.Errorf("not run: the last run, of %s, was %w", r.began.UTC().Format(time.RFC3339), ErrStuck)}
		}
	}
	began := time.Now()
	o := p.Run(ctx)
	r.ended, r.began = o.Ended, began
	return o
}
