package runner_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/runner"
)

type behaviour = map[int]func(context.Context, *runner.Inputs) (operation.Output, error)

func TestRetries(t *testing.T) {
	for name, c := range map[string]struct {
		operation string
		failures  int
		err       error
		state     v1alpha1.ResultState
		attempts  int
		took      time.Duration // delays of 1 s, 2 s, 4 s, 4 s, each ±10 %
	}{
		"succeeds at last":                   {"collect-a", 3, errors.New("no answer"), v1alpha1.ResultSucceeded, 4, 7 * time.Second},
		"never succeeds":                     {"check-a", 9, errors.New("no answer"), v1alpha1.ResultFailed, 5, 11 * time.Second},
		"a check that says no is not asked":  {"check-a", 9, &operation.Refuted{Reason: "No"}, v1alpha1.ResultRefuted, 1, 0},
		"a repair is not made again":         {"repair-a", 9, errors.New("no answer"), v1alpha1.ResultFailed, 1, 0},
		"a wrapped no is one all the same":   {"check-a", 9, fmt.Errorf("it: %w", &operation.Refuted{Reason: "No"}), v1alpha1.ResultRefuted, 1, 0},
		"a repair's answer was lost":         {"repair-a", 9, fmt.Errorf("it: %w", &operation.OutcomeUnknown{Err: io.EOF}), v1alpha1.ResultUnknown, 1, 0},
		"a check's is asked for again":       {"check-a", 9, &operation.OutcomeUnknown{Err: io.EOF}, v1alpha1.ResultFailed, 5, 11 * time.Second},
		"one that succeeds is not run again": {"collect-a", 0, nil, v1alpha1.ResultSucceeded, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				left := c.failures
				s := script{behave: behaviour{1: func(context.Context, *runner.Inputs) (operation.Output, error) {
					if left--; left >= 0 {
						return operation.Output{}, c.err
					}
					return operation.Output{}, nil
				}}}
				r := newRunner(t, runner.Config{Gate: allow()})
				d := s.diagnosis(t, "a", ": 1", c.operation+":")
				d.Steps[1].Retries, d.Steps[1].MaxBackoff = 4, 4*time.Second
				rec := record(execute(t, r, d), 1)
				if rec.State != c.state || rec.Attempts != c.attempts || rec.Duration < c.took*9/10 || rec.Duration > c.took*11/10 {
					t.Errorf("%s after %d attempts and %v", rec.State, rec.Attempts, rec.Duration)
				}
			})
		})
	}
}

func TestTimeouts(t *testing.T) {
	untilDone := func(ctx context.Context, _ *runner.Inputs) (operation.Output, error) {
		<-ctx.Done()
		return operation.Output{}, ctx.Err()
	}
	withWords := func(ctx context.Context, _ *runner.Inputs) (operation.Output, error) {
		<-ctx.Done()
		return operation.Output{}, errors.New("read /proc/811/stack: half of it")
	}
	lateAnswer := func(ctx context.Context, _ *runner.Inputs) (operation.Output, error) {
		<-ctx.Done()
		return operation.Output{}, nil
	}
	for name, c := range map[string]struct {
		operation       string
		run             func(context.Context, *runner.Inputs) (operation.Output, error)
		state           v1alpha1.ResultState
		reason, message string
	}{
		"collect":                  {"collect-a", untilDone, v1alpha1.ResultFailed, "TimedOut", "did not end within 7s"},
		"with words of its own":    {"check-a", withWords, v1alpha1.ResultFailed, "TimedOut", "did not end within 7s: read /proc/811/stack: half of it"},
		"a repair's is not known":  {"repair-a", untilDone, v1alpha1.ResultUnknown, "TimedOut", "did not end within 7s"},
		"an answer counts, though": {"repair-a", lateAnswer, v1alpha1.ResultSucceeded, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := script{behave: behaviour{1: c.run}}
				d := s.diagnosis(t, "a", ": 1", c.operation+":")
				d.Steps[1].Timeout = 7 * time.Second
				rec := record(execute(t, newRunner(t, runner.Config{Gate: allow()}), d), 1)
				if rec.State != c.state || rec.Reason != c.reason || rec.Message != c.message || rec.Duration != 7*time.Second {
					t.Errorf("%+v", rec)
				}
			})
		})
	}
}

// An operation that does not end (because it is stuck in the kernel) does not block the run. When
// too many of these hang, no more operations start until some end.
func TestOperationsThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		hang := func(context.Context, *runner.Inputs) (operation.Output, error) {
			<-release
			return operation.Output{Results: map[string]string{"late": "x"}}, nil
		}
		const most = 16
		s := script{behave: behaviour{}}
		r := newRunner(t, runner.Config{})
		lines, failed := []string{":"}, strings.Builder{}
		for id := 1; id <= most; id++ {
			s.behave[id] = hang
			lines[0] += fmt.Sprint(" ", id)
			lines = append(lines, fmt.Sprintf("collect-%d:", id))
			fmt.Fprint(&failed, id, " Failed, ")
		}
		lines[0] += fmt.Sprint(" ", most+1)
		lines = append(lines, "check-c:")
		d := s.diagnosis(t, "a", lines...)
		d.Steps[1].Retries = 5
		began := time.Now()
		rep := execute(t, r, d)
		want(t, rep, v1alpha1.PhaseFailed, v1alpha1.ReasonNoPathSucceeded, failed.String()+"17 Failed")
		if a, c := record(rep, 1), record(rep, most+1); a.Reason != "DidNotEnd" || a.Message != "did not end within 30s, and is still running" || a.Attempts != 1 || c.Reason != "OperationsHang" {
			t.Errorf("%+v\n%+v", a, c)
		}
		if took := time.Since(began); took != most*35*time.Second {
			t.Errorf("took %v", took)
		}
		if st := r.Stats(); st.Hanging != most || st.Abandoned != most {
			t.Errorf("%+v", st)
		}
		close(release)
		synctest.Wait()
		if st := r.Stats(); st.Hanging != 0 || st.Abandoned != most {
			t.Errorf("%+v", st)
		}
		want(t, execute(t, r, s.diagnosis(t, "b", lines...)), v1alpha1.PhaseSucceeded, v1alpha1.ReasonPathSucceeded, "1 Succeeded")
	})
}

func TestPanics(t *testing.T) {
	for name, run := range map[string]func(context.Context, *runner.Inputs) (operation.Output, error){
		"panic": func(context.Context, *runner.Inputs) (operation.Output, error) { panic("index out of range\n[1]") },
		"ends its routine": func(context.Context, *runner.Inputs) (operation.Output, error) {
			runtime.Goexit()
			panic("not reached")
		},
		"nil map": func(context.Context, *runner.Inputs) (operation.Output, error) {
			var out operation.Output
			out.Results["a"] = "b"
			return out, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := script{behave: behaviour{1: run, 2: run}}
			d := s.diagnosis(t, "a", ": 1 2 3", "collect-a:", "repair-b:", "collect-c:")
			d.Steps[1].Retries = 3
			rep := execute(t, newRunner(t, runner.Config{Gate: allow()}), d)
			want(t, rep, v1alpha1.PhaseUnknown, v1alpha1.ReasonOutcomeUnknown, "1 Failed, 2 Unknown")
			if rec := record(rep, 1); rec.Reason != "Panicked" || rec.Attempts != 1 || !strings.HasPrefix(rec.Message, "panic: ") || strings.Contains(rec.Message, "\n") {
				t.Errorf("%+v", rec)
			}
		})
	}
}

func TestResultsAreBounded(t *testing.T) {
	out := operation.Output{Results: map[string]string{
		"a": strings.Repeat("ä", 5000), "b": "two\nlines\tand \x1b[31m\xff", "c": strings.Repeat("\x00", 3000), "d": strings.Repeat("x", 2048),
		"e": strings.Repeat("y", 2048), "f": "no room", strings.Repeat("k", 200): "v",
	}, Verdict: &operation.Verdict{Reason: "7 of nine!", Message: strings.Repeat("\x00", 2000)}}
	s := script{behave: behaviour{1: func(context.Context, *runner.Inputs) (operation.Output, error) { return out, nil }}}
	rec := record(execute(t, newRunner(t, runner.Config{}), s.diagnosis(t, "a", ": 1", "check-a:")), 1)
	total := 0
	for k, v := range rec.Results {
		total += len(k) + len(v)
		if len(v) > operation.MaxResult {
			t.Errorf("%s has %d bytes", k, len(v))
		}
	}
	if !rec.Truncated || total > operation.MaxResults || sortedKeys(rec.Results) != "a b c d e" {
		t.Errorf("%d bytes of %s, truncated %v", total, sortedKeys(rec.Results), rec.Truncated)
	}
	if len(rec.Results["a"]) != 2048 || rec.Results["b"] != "two\nlines\tand \\x1b[31m\\xff" {
		t.Errorf("%q", rec.Results["b"])
	}
	if rec.Verdict.Reason != "ofnine" || len(rec.Verdict.Message) > 1024 || !strings.HasSuffix(rec.Verdict.Message, "…") {
		t.Errorf("%d bytes: %s", len(rec.Verdict.Message), rec.Verdict.Reason)
	}
	out = operation.Output{Results: map[string]string{"a": "b"}}
	if rec := record(execute(t, newRunner(t, runner.Config{}), s.diagnosis(t, "a", ": 1", "check-a:")), 1); rec.Truncated {
		t.Error("nothing is cut")
	}
}
