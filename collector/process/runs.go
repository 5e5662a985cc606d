package process

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Runs runs a program repeatedly, but not while processes of an earlier run exist that could not
// be killed: these would pile up as long as a disk or file server hangs. The zero value is ready.
// It is for one goroutine at a time.
type Runs struct {
	last  *process // nil: there was none, or it has ended
	began time.Time
}

// Run is [Program.Run]. While an earlier run, or a process that it started, has not ended, it
// starts nothing and returns an [ErrStuck] with the time of that run.
func (r *Runs) Run(ctx context.Context, p *Program) Outcome {
	if r.last != nil && !r.last.over() {
		return Outcome{Err: fmt.Errorf("not run: the last run, of %s, was %w", r.began.UTC().Format(time.RFC3339), ErrStuck)}
	}
	r.began = time.Now()
	o, last := p.run(ctx)
	r.last = last
	if last != nil && !errors.Is(o.Err, ErrStuck) && last.overWithin(killFor) {
		r.last = nil
	}
	return o
}
