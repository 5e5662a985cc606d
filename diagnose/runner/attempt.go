package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"runtime/debug"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/kernosis/kernosis/diagnose/operation"
)

const (
	// maxGrace is how long an operation may take to return after its timeout. Then it is abandoned.
	maxGrace = 5 * time.Second
	// maxAbandoned bounds abandoned operations that are still running. At the bound no operation
	// starts.
	maxAbandoned = 16
)

// timedOut is the error of an attempt that exceeded its timeout.
type timedOut struct{ after time.Duration }

func (e *timedOut) Error() string { return fmt.Sprintf("did not end within %s", e.after) }

// left is the error of an operation that was abandoned because it did not return after its timeout.
type left struct{ why error }

func (e *left) Error() string { return fmt.Sprintf("%v, and is still running", e.why) }
func (e *left) Unwrap() error { return e.why }

// panicked is the error of an operation that panicked; value is what it panicked with.
type panicked struct{ value any }

func (e *panicked) Error() string {
	what, _, _ := strings.Cut(fmt.Sprint(e.value), "\n") // the rest is in the log
	return "panic: " + what
}

// errHanging is returned if too many abandoned operations are still running.
var errHanging = errors.New("operations of earlier runs hang: not starting another")

// attempt runs an operation, retries it where that makes sense, and returns the number of attempts.
// If ctx was done, the error wraps its cause.
func (r *Runner) attempt(ctx context.Context, s *Step, in func() *Inputs) (out operation.Output, tries int, err error) {
	most := uint(s.Retries) + 1
	if s.Operation.Effect == operation.Remediate {
		most = 1
	}
	pauses := &backoff.ExponentialBackOff{
		InitialInterval: cmp.Or(s.Backoff, time.Second), MaxInterval: cmp.Or(s.MaxBackoff, 30*time.Second),
		Multiplier: 2, RandomizationFactor: 0.1,
	}
	_, waited := backoff.Retry(ctx, func() (struct{}, error) {
		tries++
		out, err = r.once(ctx, s, in())
		if err != nil && !worthRetrying(err) {
			return struct{}{}, backoff.Permanent(err)
		}
		return struct{}{}, err
	}, backoff.WithBackOff(pauses), backoff.WithMaxTries(most), backoff.WithMaxElapsedTime(0))
	if cause := context.Cause(ctx); waited != nil && cause != nil && worthRetrying(err) && !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", cause, err) // it would have been retried
	}
	return out, tries, err
}

func worthRetrying(err error) bool {
	return !is[*operation.Refuted](err) && !is[*panicked](err) && !is[*left](err) && !errors.Is(err, errHanging)
}

// is reports whether an error is, or wraps, one of type E.
func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// once runs an operation in its own goroutine, so that an operation that ignores its context
// (because it is stuck in the kernel, say) does not block the run.
func (r *Runner) once(ctx context.Context, s *Step, in *Inputs) (operation.Output, error) {
	if r.abandoned.Load() >= maxAbandoned {
		return operation.Output{}, errHanging
	}
	timeout := cmp.Or(s.Timeout, DefaultTimeout)
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, &timedOut{timeout})
	defer cancel()
	type result struct {
		out operation.Output
		err error
	}
	ended := make(chan result, 1)
	go func() {
		var res result
		returned := false
		defer func() {
			if p := recover(); p != nil || !returned { // or it called runtime.Goexit
				in.Log.Error("operation panicked", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
				res = result{err: &panicked{p}}
			}
			ended <- res
		}()
		res.out, res.err = s.Operation.Run(ctx, in)
		returned = true
	}()
	why := func() error { return context.Cause(ctx) }
	var res result
	select {
	case res = <-ended:
	case <-ctx.Done():
		grace := time.NewTimer(maxGrace)
		defer grace.Stop()
		select {
		case res = <-ended:
		case <-grace.C:
			r.abandoned.Add(1)
			r.count(func(st *Stats) { st.Abandoned++ })
			go func() { <-ended; r.abandoned.Add(-1) }()
			return operation.Output{}, &left{why()}
		}
	}
	// A check that was refuted got its answer in time.
	if res.err != nil && ctx.Err() != nil && !is[*panicked](res.err) && !is[*operation.Refuted](res.err) {
		if errors.Is(res.err, context.Canceled) || errors.Is(res.err, context.DeadlineExceeded) || errors.Is(res.err, why()) {
			return res.out, why() // the error adds nothing to the cause
		}
		return res.out, fmt.Errorf("%w: %w", why(), res.err)
	}
	return res.out, res.err
}

// inputs returns new Inputs for one attempt of a node's operation. The operation writes its files
// to artifacts.
func (e *execution) inputs(id int, artifacts operation.Artifacts) *Inputs {
	node := e.d.Graph.Node(id)
	in := &Inputs{
		Parameters: map[string]string{}, Results: map[string]string{},
		Artifacts: artifacts,
		Log:       e.log.With("id", id, "operation", node.Operation),
	}
	maps.Copy(in.Parameters, e.d.Parameters)
	for _, d := range node.Dependences {
		if rec := e.record(d); rec != nil { // graph.Build has checked that it runs earlier
			maps.Copy(in.Results, rec.Results)
		}
	}
	return in
}

// noArtifacts refuses all artifacts.
type noArtifacts struct{}

func (n noArtifacts) Of(int, string) (operation.Artifacts, error) { return n, nil }
func (noArtifacts) End()                                          {}
func (noArtifacts) Create(string) (io.WriteCloser, error) {
	return nil, operation.ErrArtifactBudget
}
