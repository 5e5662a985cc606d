// Package bounded calls functions that may hang in the kernel, such as a write to a disk
// that does not answer, and gives up on them.
//
// A thread in uninterruptible sleep can be neither woken nor ended. So each call has a
// goroutine of its own, which is left behind when its time is over. How many may be left
// behind is bounded: beyond that, calls fail at once, until one of them returns.
package bounded

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrLate says that a call has not returned in its time.
var ErrLate = errors.New("no answer in time")

// ErrRefused says that a call was not made, as too many before it have not returned. It is
// an [ErrLate] too.
var ErrRefused = fmt.Errorf("%w to earlier calls", ErrLate)

// Calls are calls of one kind. The zero value is ready.
type Calls struct {
	// Max is how many calls may be left behind before others are refused; 0: 1. Those that
	// are under way then may be left behind as well.
	Max int

	mu    sync.Mutex
	stats Stats
}

// Stats counts calls.
type Stats struct {
	Behind  int    // were left behind and have not returned
	Late    uint64 // were left behind
	Refused uint64 // were not made, as too many were left behind
}

// Stats returns the counters.
func (c *Calls) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats
}

// Do calls f and returns what it returns, or [ErrLate] where that takes longer than within.
// f may then go on for any time: it must own what it uses.
func Do[T any](c *Calls, within time.Duration, f func() (T, error)) (T, error) {
	return DoSteps(c, within, func(func() error) (T, error) { return f() })
}

// DoSteps is [Do] for a call of many steps that takes as long as they take together, such as a
// read of a long file by a process that gets little of the CPU: f calls step after each, and is
// given up once there has been none for within, or for up to twice as long. step then returns
// [ErrLate], for f to end.
func DoSteps[T any](c *Calls, within time.Duration, f func(step func() error) (T, error)) (T, error) {
	var none T
	if c.refuse() {
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

// Err is [Do] for what returns an error alone.
func Err(c *Calls, within time.Duration, f func() error) error {
	_, err := Do(c, within, func() (struct{}, error) { return struct{}{}, f() })
	return err
}

func (c *Calls) refuse() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stats.Behind < max(c.Max, 1) {
		return false
	}
	c.stats.Refused++
	return true
}
