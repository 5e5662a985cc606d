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

// Patience limits calls that the kernel may block forever: a request to a dead file server, the
// command line of a process whose memory lock is held. Nothing can end such a call; it is
// abandoned, and the number of these is bounded. Patience is safe for concurrent use.
type Patience struct{ slots chan struct{} }

// hangingLooks bounds the abandoned calls of one built-in: each blocks a thread.
const hangingLooks = 4

// LookLimit is the timeout of one look at a process. Reading a command line takes the lock of the
// process' memory, reading a stack the lock of exec, reading cgroups a lock of the whole node. A
// hung task may hold any of these forever.
const LookLimit = 2 * time.Second

// NewPatience returns a Patience without abandoned calls.
func NewPatience() Patience { return Patience{make(chan struct{}, hangingLooks)} }

// Look runs fn for at most limit; 0: until ctx ends. If fn panics, Look panics too, so that the
// caller can recover. A panic of an abandoned fn only ends it.
func Look[T any](ctx context.Context, p Patience, limit time.Duration, fn func() (T, error)) (T, error) {
	type answer struct {
		value    T
		err      error
		panicked any // with its stack
	}
	var none T
	select {
	case p.slots <- struct{}{}:
	default:
		return none, fmt.Errorf("not attempted: %d earlier reads still wait for the kernel", cap(p.slots))
	}
	done := make(chan answer, 1)
	go func() {
		var a answer
		defer func() {
			if r := recover(); r != nil {
				a.panicked = fmt.Sprintf("%v\n%s", r, debug.Stack())
			}
			<-p.slots // before the answer: the receiver may call Look again at once
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

// runsAtOnce bounds the concurrent runs of one built-in, abandoned ones included.
const runsAtOnce = 64

// Bounded makes a built-in's Run return when its context ends, even if the kernel blocks it: files
// of /proc and /sys take locks that a hung task may hold. A run that was abandoned can't write
// artifacts any more.
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

// artifactGate forwards artifacts until the run is over. It is safe for concurrent use.
type artifactGate struct {
	to Artifacts

	mu   sync.Mutex
	over bool
}

// errRunIsOver is returned to a run that was abandoned.
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

// gatedFile is a file that refuses writes once the run is over.
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
