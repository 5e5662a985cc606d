package runner_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/runner"
)

func TestTheRunWaitsForTheGate(t *testing.T) {
	for name, c := range map[string]struct {
		decision runner.Decision
		err      error
		intent   error
		reason   string
		message  string
	}{
		"approval":          {runner.Decision{Verb: v1alpha1.RemediationWait, Reason: "AwaitingApproval", Message: "approve plan 9c1e"}, nil, nil, "AwaitingApproval", "approve plan 9c1e"},
		"the gate is away":  {runner.Decision{}, errors.New("connection refused"), nil, runner.ReasonGateFailed, "connection refused"},
		"no decision":       {runner.Decision{}, nil, nil, "Waiting", ""},
		"the API is away":   {runner.Decision{Verb: v1alpha1.RemediationRun}, nil, errors.New("503"), runner.ReasonIntentNotSaved, "503"},
		"an unknown answer": {runner.Decision{Verb: "Perhaps", Reason: "R"}, nil, nil, "R", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var s script
			g := &gate{Decision: c.decision, err: c.err}
			intent := c.intent
			r := newRunner(t, runner.Config{Gate: g, Intent: func(context.Context, *runner.Action) error { return intent }})
			d := s.diagnosis(t, "a", hungTask()...)
			rep := execute(t, r, d)
			want(t, rep, v1alpha1.PhaseRunning, "", "1 Succeeded, 2 Refuted, 3 Succeeded, 4 AwaitingApproval")
			if rep.Waiting == nil || *rep.Waiting != (runner.Waiting{ID: 4, Reason: c.reason, Message: c.message}) {
				t.Errorf("%+v", rep.Waiting)
			}
			// The gate is asked again, and what has run does not run again.
			g.Decision, g.err, intent = runner.Decision{Verb: v1alpha1.RemediationRun}, nil, nil
			rep = execute(t, r, d)
			want(t, rep, v1alpha1.PhaseSucceeded, v1alpha1.ReasonPathSucceeded, "1 Succeeded, 2 Refuted, 3 Succeeded, 4 Succeeded, 5 Succeeded")
			if got := fmt.Sprint(s.runs(), len(g.asked)); got != "[1 2 3 4 5] 2" {
				t.Error(got)
			}
		})
	}
}

// gateFunc is a gate that calls a function.
type gateFunc func(ctx context.Context, a *runner.Action) (runner.Decision, error)

func (f gateFunc) Allow(ctx context.Context, a *runner.Action) (runner.Decision, error) {
	return f(ctx, a)
}

// A run that is cancelled or interrupted during the call of the gate or of Intent makes no repair,
// whatever they return.
func TestEndedWhileTheGateThinks(t *testing.T) {
	stop := errors.New("the agent ends")
	for _, cause := range []error{stop, &runner.Cancelled{Reason: "deleted"}} {
		for _, at := range []string{"gate", "intent"} {
			for _, answer := range []error{nil, errors.New("503")} {
				ctx, cancel := context.WithCancelCause(t.Context())
				end := func(here string) error {
					if here == at {
						cancel(cause)
						return answer
					}
					return nil
				}
				var s script
				r := newRunner(t, runner.Config{
					Gate: gateFunc(func(context.Context, *runner.Action) (runner.Decision, error) {
						return runner.Decision{Verb: v1alpha1.RemediationRun}, end("gate")
					}),
					Intent: func(context.Context, *runner.Action) error { return end("intent") },
				})
				rep, err := r.Execute(ctx, s.diagnosis(t, "a", hungTask()...))
				phase := v1alpha1.PhaseRunning
				if cause != stop { //nolint:errorlint // it is this one
					phase = v1alpha1.PhaseCancelled
				}
				if rep.Phase != phase || rep.Waiting != nil || errors.Is(err, stop) != (phase == v1alpha1.PhaseRunning) || fmt.Sprint(s.runs()) != "[1 2 3]" {
					t.Errorf("%v in %s, %v: %s, %+v, %v, ran %v", cause, at, answer, rep.Phase, rep.Waiting, err, s.runs())
				}
				cancel(nil)
			}
		}
	}
}

// A gate that never answers blocks the run for a bounded time.
func TestAGateThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s script
		r := newRunner(t, runner.Config{Gate: gateFunc(func(ctx context.Context, _ *runner.Action) (runner.Decision, error) {
			<-ctx.Done()
			return runner.Decision{}, ctx.Err()
		})})
		began := time.Now()
		rep := execute(t, r, s.diagnosis(t, "a", hungTask()...))
		if rep.Waiting == nil || rep.Waiting.Reason != "GateFailed" || time.Since(began) != 30*time.Second {
			t.Errorf("%+v after %v", rep.Waiting, time.Since(began))
		}
	})
}

func TestWithheld(t *testing.T) {
	var s script
	g := &gate{Decision: runner.Decision{Verb: v1alpha1.RemediationWithheld, Reason: "BudgetExhausted", Message: "2 of 2 nodes"}}
	rep := execute(t, newRunner(t, runner.Config{Gate: g}), s.diagnosis(t, "a", hungTask()...))
	want(t, rep, v1alpha1.PhaseSucceeded, v1alpha1.ReasonPathSucceeded, "1 Succeeded, 2 Refuted, 3 Succeeded, 4 Withheld, 5 WouldRun")
	if rec := record(rep, 4); rec.Reason != "BudgetExhausted" || rec.Message != "2 of 2 nodes" || rep.Message == "" {
		t.Errorf("%+v", rec)
	}
}

// A repair that an earlier run has made is skipped, and the path continues to the next repair.
func TestMadeBefore(t *testing.T) {
	var s script
	g := &gate{Decision: runner.Decision{Verb: v1alpha1.RemediationWithheld, Reason: v1alpha1.ReasonMadeBefore, Message: "mend was made 2 of 2 times"}}
	r := newRunner(t, runner.Config{Gate: g})
	d := s.diagnosis(t, "a", hungTask()...)
	rep := execute(t, r, d)
	want(t, rep, v1alpha1.PhaseSucceeded, v1alpha1.ReasonPathSucceeded, "1 Succeeded, 2 Refuted, 3 Succeeded, 4 Withheld, 5 Succeeded")
	if got := fmt.Sprint(s.runs()); got != "[1 2 3 5]" {
		t.Error(got)
	}
	if again := execute(t, r, d); again.Phase != v1alpha1.PhaseSucceeded {
		t.Errorf("%+v", again)
	}
}

// Two diagnoses never repair at the same time, and the gate is asked only when the first
// repair has ended.
func TestOneRepairAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var inside, most atomic.Int32
		s := script{behave: behaviour{1: func(context.Context, *runner.Inputs) (operation.Output, error) {
			most.Store(max(most.Load(), inside.Add(1)))
			time.Sleep(time.Second)
			inside.Add(-1)
			return operation.Output{}, nil
		}}}
		g := allow()
		r := newRunner(t, runner.Config{Gate: g})
		ended := make(chan *runner.Report)
		begin := func(id string) {
			d := s.diagnosis(t, id, ": 1", "repair-a:")
			go func() {
				rep, err := r.Execute(t.Context(), d)
				if err != nil {
					t.Error(err)
				}
				ended <- rep
			}()
		}
		began := time.Now()
		for i := range 4 {
			begin(fmt.Sprint("same", i))
		}
		for range 4 {
			want(t, <-ended, v1alpha1.PhaseSucceeded, v1alpha1.ReasonPathSucceeded, "1 Succeeded")
		}
		if took := time.Since(began); most.Load() != 1 || took != 4*time.Second {
			t.Errorf("%d repairs at a time, %v", most.Load(), took)
		}
		// A run that waits for another's repair is cancelled at once.
		begin("long")
		synctest.Wait()
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Millisecond, &runner.Cancelled{Reason: "not needed"})
		defer cancel()
		rep, err := r.Execute(ctx, s.diagnosis(t, "short", ": 1", "repair-a:"))
		if err != nil {
			t.Fatal(err)
		}
		want(t, rep, v1alpha1.PhaseCancelled, v1alpha1.ReasonCancelled, "")
		<-ended
	})
}

// A repair that was made elsewhere is recorded with its outcome, and nothing runs here.
func TestARepairMadeElsewhere(t *testing.T) {
	for _, c := range []struct {
		outcome *v1alpha1.RemediationOutcome
		phase   v1alpha1.Phase
		reason  string
		records string
	}{
		{&v1alpha1.RemediationOutcome{State: v1alpha1.ResultSucceeded}, v1alpha1.PhaseSucceeded, v1alpha1.ReasonPathSucceeded, "1 Succeeded, 2 Refuted, 3 Succeeded, 4 Succeeded, 5 Succeeded"},
		{&v1alpha1.RemediationOutcome{State: v1alpha1.ResultFailed}, v1alpha1.PhaseFailed, v1alpha1.ReasonNoPathSucceeded, "1 Succeeded, 2 Refuted, 3 Succeeded, 4 Failed"},
		{&v1alpha1.RemediationOutcome{State: v1alpha1.ResultUnknown}, v1alpha1.PhaseUnknown, v1alpha1.ReasonOutcomeUnknown, "1 Succeeded, 2 Refuted, 3 Succeeded, 4 Unknown"},
		{&v1alpha1.RemediationOutcome{State: v1alpha1.ResultRunning}, v1alpha1.PhaseRunning, "", "1 Succeeded, 2 Refuted, 3 Succeeded, 4 AwaitingApproval"},
		{nil, v1alpha1.PhaseRunning, "", "1 Succeeded, 2 Refuted, 3 Succeeded, 4 AwaitingApproval"},
	} {
		if o := c.outcome; o != nil {
			o.Message, o.Values = "n7 is\ncordoned", map[string]string{"node": "n7", "changed": "true"}
			o.StartTime = metav1.NewMicroTime(time.Now().Add(time.Hour))
			ended := metav1.NewMicroTime(o.StartTime.Add(2 * time.Second))
			o.CompletionTime = &ended
		}
		var s script
		reported := 0
		conf := runner.Config{
			Dir:    t.TempDir(),
			Gate:   &gate{Decision: runner.Decision{Verb: v1alpha1.RemediationRun, Elsewhere: true, Outcome: c.outcome}},
			Intent: func(context.Context, *runner.Action) error { reported++; return nil },
		}
		d := s.diagnosis(t, "a", hungTask()...)
		before := time.Now()
		rep := execute(t, newRunner(t, conf), d)
		want(t, rep, c.phase, c.reason, c.records)
		wantRuns := "[1 2 3]"
		if c.phase == v1alpha1.PhaseSucceeded {
			wantRuns = "[1 2 3 5]"
		}
		if got := fmt.Sprint(s.runs()); got != wantRuns || reported != 0 {
			t.Errorf("ran %s, want %s; %d intents", got, wantRuns, reported)
		}
		if c.phase == v1alpha1.PhaseRunning {
			continue
		}
		rec := record(rep, 4)
		if rec.Message != `n7 is\ncordoned` || rec.Results["changed"] != "true" || rec.Duration != 2*time.Second || !rec.Repairs {
			t.Errorf("%+v", rec)
		}
		// By the local clock the repair has ended now.
		if end := rec.Start.Add(rec.Duration); end.Before(before) || end.After(time.Now()) {
			t.Errorf("ended %s, taken over after %s", end, before)
		}
		// The outcome is on disk: if the agent is killed now, the next one finds it and does not
		// ask.
		conf.Gate = &gate{err: errors.New("is not to be asked")}
		rep = execute(t, newRunner(t, conf), d)
		want(t, rep, c.phase, c.reason, c.records)
	}
}
