package operation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"sync"
	"time"
)

// Patience runs looks that the kernel may hold up for ever: a question to a dead
// file server, the command line of a process whose memory lock is held. Nothing can
// end such a look; it is left behind, and only so many may be. It is safe for
// concurrent use.
type Patience struct{ slots chan struct{} }

// hangingLooks is how many looks of one built-in may be left behind: each is a
// thread that waits.
const hangingLooks = 4

// LookLimit is how long one look at a process may take: a command line takes the lock
// of the process' memory, a stack that of exec, cgroups a lock of the whole node, and
// what hangs may hold any of them for ever.
const LookLimit = 2 * time.Second

// NewPatience returns one that nothing was left behind of.
func NewPatience() Patience { return Patience{make(chan struct{}, hangingLooks)} }

// Look runs fn for at most limit; 0: until ctx ends. Where fn panics, look does, so that
// who runs operations can contain it; a look that was left behind is over by it.
func Look[T any](ctx context.Context, p Patience, limit time.Duration, fn func() (T, error)) (T, error) {
	type answer struct {
		value    T
		err      error
		panicked any // with where
	}
	var none T
	select {
	case p.slots <- struct{}{}:
	default:
		return none, fmt.Errorf("not looked: %d earlier looks still wait for the kernel", cap(p.slots))
	}
	done := make(chan answer, 1)
	go func() {
		var a answer
		defer func() {
			if r := recover(); r != nil {
				a.panicked = fmt.Sprintf("%v\n%s", r, debug.Stack())
			}
			<-p.slots // before the answer: who gets it may ask again at once
			done <- a
		}()
		a.value, a.err = fn()
	}()
	if limit > 0 {
		var cancel func()
		ctx, cancel = context.WithTimeoutCause(ctx, limit, &NoAnswerError{limit})
		defer cancel()
	}
	select {
	case a := <-done:
		if a.panicked != nil {
			panic(a.panicked)
		}
		return a.value, a.err
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
}

// NoAnswerError reports that the kernel did not answer in time.
type NoAnswerError struct{ limit time.Duration }

func (e *NoAnswerError) Error() string { return fmt.Sprintf("no answer within %s", e.limit) }

// runsAtOnce bounds the runs of one built-in, those left behind among them.
const runsAtOnce = 64

// Bounded has a built-in's Run return when its context ends, whatever the kernel holds
// it up with: files of /proc and /sys take locks that what hangs may hold. A run that
// is left behind writes no more artifacts.
func Bounded(b Builtin) Builtin {
	run, patient := b.Run, Patience{make(chan struct{}, runsAtOnce)}
	b.Run = func(ctx context.Context, call *Call) (Output, error) {
		inner := *call
		if call.Artifacts != nil {
			gate := &artifactGate{to: call.Artifacts}
			defer gate.shut()
			inner.Artifacts = gate
		}
		return Look(ctx, patient, 0, func() (Output, error) { return run(ctx, &inner) })
	}
	return b
}

// artifactGate passes artifacts on until the run is over. It is safe for concurrent
// use.
type artifactGate struct {
	to Artifacts

	mu   sync.Mutex
	over bool
}

// errRunIsOver is returned to a run that was left behind.
var errRunIsOver = errors.New("the run is over")

func (g *artifactGate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.over = true
}

func (g *artifactGate) Create(name string) (io.WriteCloser, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.over {
		return nil, errRunIsOver
	}
	file, err := g.to.Create(name)
	if err != nil {
		return nil, err
	}
	return &gatedFile{file, g}, nil
}

// gatedFile is a file that takes nothing once the run is over.
type gatedFile struct {
	io.WriteCloser
	gate *artifactGate
}

func (f *gatedFile) Write(b []byte) (int, error) {
	f.gate.mu.Lock()
	defer f.gate.mu.Unlock()
	if f.gate.over {
		return 0, errRunIsOver
	}
	return f.WriteCloser.Write(b)
}

// Pause pauses for d, or until ctx ends.
func Pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
