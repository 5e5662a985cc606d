// Package bounded calls functions that may hang in the kernel, such as a write to a disk that does
// not answer, and gives up on them after a timeout.
//
// A thread in uninterruptible sleep can be neither woken nor ended. So each call has a goroutine
// of its own, which is abandoned when the call times out. The number of abandoned calls is
// bounded: beyond that, calls fail at once, until one of them returns.
package bounded

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrLate is returned for a call that timed out.
var ErrLate = errors.New("no answer in time")

// ErrRefused is returned, wrapping [ErrLate], if too many earlier calls have not returned.
var ErrRefused = fmt.Errorf("%w to earlier calls", ErrLate)

// Calls are calls of one kind. The zero value is ready.
type Calls struct {
	// Max is how many abandoned calls there may be before further calls are refused; 0 means 1.
	// Calls that already run then may be abandoned too.
	Max int

	mu    sync.Mutex
	stats Stats
}

// Stats are the counters of calls.
type Stats struct {
	Behind  int    // abandoned and not returned yet
	Late    uint64 // abandoned
	Refused uint64 // not made, because too many were abandoned
}

// Stats returns the counters.
func (c *Calls) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats
}

// Do calls f and returns its result, or [ErrLate] if that takes longer than within. f may continue
// after that for any time, so it must own what it uses.
func Do[T any](c *Calls, within time.Duration, f func() (T, error)) (T, error) {
	return DoSteps(c, within, func(func() error) (T, error) { return f() })
}

// DoSteps is [Do] for a call of many steps without a limit on their total time, such as reading a
// long file in a process that gets little CPU time. f calls step after each step. A call without a
// step for within, or up to twice as long, is abandoned; step then returns [ErrLate], so that f can
// end.
func DoSteps[T any](c *Calls, within time.Duration, f func(step func() error) (T, error)) (T, error) {
	var none T
	c.mu.Lock()
	refused := c.stats.Behind >= max(c.Max, 1)
	if refused {
		c.stats.Refused++
	}
	c.mu.Unlock()
	if refused {
		return none, ErrRefused
	}
	type result struct {
		value T
		err   error
	}
	answer := make(chan result, 1)
	var moved, ended, left bool // guarded by c.mu
	step := func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if left {
			return ErrLate
		}
		moved = true
		return nil
	}
	go func() {
		var r result
		r.value, r.err = f(step)
		c.mu.Lock()
		ended = true
		if left {
			c.stats.Behind--
		}
		c.mu.Unlock()
		answer <- r
	}()
	tick := time.NewTicker(within)
	defer tick.Stop()
	for {
		select {
		case r := <-answer:
			return r.value, r.err
		case <-tick.C:
		}
		c.mu.Lock()
		if left = !moved && !ended; left {
			c.stats.Behind++
			c.stats.Late++
		}
		moved = false
		c.mu.Unlock()
		if left {
			return none, ErrLate
		}
	}
}

// Err is [Do] for a function that returns only an error.
func Err(c *Calls, within time.Duration, f func() error) error {
	_, err := Do(c, within, func() (struct{}, error) { return struct{}{}, f() })
	return err
}
