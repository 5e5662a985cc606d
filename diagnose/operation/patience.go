package operation

import (
	"context"
	"fmt"
	"time"
)

// patience runs looks that the kernel may hold up for ever: a question to a dead
// file server, the command line of a process whose memory lock is held. Nothing can
// end such a look; it is left behind, and only so many may be. It is safe for
// concurrent use.
type patience struct{ slots chan struct{} }

// hangingLooks is how many looks of one built-in may be left behind: each is a
// thread that waits.
const hangingLooks = 4

func newPatience() patience { return patience{make(chan struct{}, hangingLooks)} }

// look runs fn for at most limit.
func look[T any](ctx context.Context, p patience, limit time.Duration, fn func() (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	var none T
	select {
	case p.slots <- struct{}{}:
	default:
		return none, fmt.Errorf("not looked: %d earlier looks still wait for the kernel", hangingLooks)
	}
	done := make(chan answer, 1)
	go func() {
		value, err := fn()
		<-p.slots // before the answer: who gets it may ask again at once
		done <- answer{value, err}
	}()
	ctx, cancel := context.WithTimeoutCause(ctx, limit, &noAnswerError{limit})
	defer cancel()
	select {
	case a := <-done:
		return a.value, a.err
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
}

// noAnswerError tells that the kernel did not answer in time.
type noAnswerError struct{ limit time.Duration }

func (e *noAnswerError) Error() string { return fmt.Sprintf("no answer within %s", e.limit) }
