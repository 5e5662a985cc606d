package runner_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/runner"
)

// stopAt executes a diagnosis, and ends ctx with a cause while a node runs.
func stopAt(t *testing.T, r *runner.Runner, s *script, d *runner.Diagnosis, node int, cause error) (*runner.Report, error) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	s.behave = behaviour{node: func(ctx context.Context, _ *runner.Inputs) (operation.Output, error) {
		cancel(cause)
		<-ctx.Done()
		return operation.Output{}, fmt.Errorf("read: %w", ctx.Err())
	}}
	defer func() { s.behave = nil }()
	return r.Execute(ctx, d)
}

// A run that is interrupted at any of its nodes resumes: completed nodes don't run again, and the
// interrupted node does unless it is a repair.
func TestInterruptedAtEachNode(t *testing.T) {
	stop := errors.New("the agent ends")
	for node := 1; node <= 5; node++ {
		var s script
		dir := t.TempDir()
		d := s.diagnosis(t, "a", hungTask()...)
		rep, err := stopAt(t, newRunner(t, runner.Config{Dir: dir, Gate: allow()}), &s, d, node, stop)
		if node == 4 {
			if err != nil {
				t.Fatal(err)
			}
			want(t, rep, v1alpha1.PhaseUnknown, v1alpha1.ReasonOutcomeUnknown, "1 Succeeded, 2 Refuted, 3 Succeeded, 4 Unknown")
			if rec := record(rep, 4); rec.Reason != "Interrupted" || !strings.Contains(rec.Message, "the agent ends") {
				t.Errorf("%+v", rec)
			}
			continue
		}
		if !errors.Is(err, stop) || rep == nil || rep.Phase != v1alpha1.PhaseRunning {
			t.Fatalf("node %d: %+v, %v", node, rep, err)
		}
		r := newRunner(t, runner.Config{Dir: dir, Gate: allow()})
		rep = execute(t, r, d)
		want(t, rep, v1alpha1.PhaseSucceeded, v1alpha1.ReasonPathSucceeded, "1 Succeeded, 2 Refuted, 3 Succeeded, 4 Succeeded, 5 Succeeded")
		ran := []int{1, 2, 3, 4, 5}
		ran = append(ran[:node:node], ran[node-1:]...)
		if got := fmt.Sprint(s.runs()); got != fmt.Sprint(ran) {
			t.Errorf("node %d: ran %v, want %v", node, got, ran)
		}
	}
}

func TestCancelled(t *testing.T) {
	var s script
	d := s.diagnosis(t, "a", hungTask()...)
	r := newRunner(t, runner.Config{Gate: allow()})
	rep, err := stopAt(t, r, &s, d, 3, &runner.Cancelled{Reason: "spec.cancel\n"})
	if err != nil {
		t.Fatal(err)
	}
	want(t, rep, v1alpha1.PhaseCancelled, v1alpha1.ReasonCancelled, "1 Succeeded, 2 Refuted")
	if rep.Message != `spec.cancel\n` || rep.Verdict != nil {
		t.Errorf("%q", rep.Message)
	}
	if again := execute(t, r, d); again.Phase != v1alpha1.PhaseCancelled || len(s.runs()) != 3 {
		t.Errorf("%s, ran %v", again.Phase, s.runs())
	}
	// A repair that was cancelled may have been made.
	rep, err = stopAt(t, r, &s, s.diagnosis(t, "b", hungTask()...), 4, &runner.Cancelled{Reason: "deleted"})
	if err != nil {
		t.Fatal(err)
	}
	want(t, rep, v1alpha1.PhaseUnknown, v1alpha1.ReasonOutcomeUnknown, "1 Succeeded, 2 Refuted, 3 Succeeded, 4 Unknown")
	// A diagnosis that is cancelled before it begins runs nothing.
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(&runner.Cancelled{Reason: "deleted"})
	before := len(s.runs())
	if rep, err = r.Execute(ctx, s.diagnosis(t, "c", hungTask()...)); err != nil || rep.Phase != v1alpha1.PhaseCancelled || len(s.runs()) != before {
		t.Errorf("%+v, %v", rep, err)
	}
}

// half creates a checkpoint of a run that waits for the gate.
func half(t *testing.T, dir string, lines ...string) (*script, *runner.Diagnosis) {
	t.Helper()
	s := &script{}
	d := s.diagnosis(t, "a", lines...)
	rep := execute(t, newRunner(t, runner.Config{Dir: dir, Gate: &gate{}}), d)
	if rep.Waiting == nil {
		t.Fatal(states(rep))
	}
	return s, d
}

func TestDamagedCheckpoints(t *testing.T) {
	flip := func(b []byte) []byte { b[len(b)/2] ^= 1; return b }
	for name, c := range map[string]struct {
		damage func([]byte) []byte
		want   string
	}{
		"a bit":        {flip, "it is damaged: the checksum does not match"},
		"torn":         {func(b []byte) []byte { return b[:len(b)-7] }, "it is damaged"},
		"empty":        {func([]byte) []byte { return nil }, "not a checkpoint of a diagnosis"},
		"another file": {func([]byte) []byte { return []byte("{}\n{}") }, "not a checkpoint of a diagnosis"},
		"no version":   {func(b []byte) []byte { return bytes.Replace(b, []byte("-1 "), []byte("-x "), 1) }, "not a checkpoint"},
		"too large":    {func([]byte) []byte { return make([]byte, 33<<20) }, "at most"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "a.checkpoint")
			s, d := half(t, dir, hungTask()...)
			damage := func() {
				raw, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, c.damage(raw), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			damage()
			r := newRunner(t, runner.Config{Dir: dir, Gate: allow()})
			ran := len(s.runs())
			for range 2 { // it stays until a person has looked
				rep, err := r.Execute(t.Context(), d)
				var bad *runner.CheckpointError
				if !errors.As(err, &bad) || bad.Path != path || !strings.Contains(err.Error(), c.want) || len(s.runs()) != ran {
					t.Fatalf("%v, ran %v", err, s.runs())
				}
				if rep.Phase != v1alpha1.PhaseUnknown || rep.Reason != v1alpha1.ReasonOutcomeUnknown || !strings.Contains(rep.Message, c.want) {
					t.Errorf("%+v", rep)
				}
			}
			if err := r.Forget("a"); err != nil {
				t.Fatal(err)
			}
			if rep := execute(t, r, d); rep.Phase != v1alpha1.PhaseSucceeded || r.Stats().Corrupt != 2 {
				t.Errorf("%s, %+v", states(rep), r.Stats())
			}
			// A diagnosis that changes nothing begins again, and the damaged file is kept.
			harmless := s.diagnosis(t, "a", ": 1", "collect-a: 2", "check-b:")
			damage()
			want(t, execute(t, r, harmless), v1alpha1.PhaseSucceeded, v1alpha1.ReasonPathSucceeded, "1 Succeeded, 2 Succeeded")
			if _, err := os.Stat(path + ".damaged"); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestThePlanHasChanged(t *testing.T) {
	other := []string{": 1", "collect-stacks: 2", "repair-other:"}
	dir := t.TempDir()
	s, _ := half(t, dir, hungTask()...)
	r := newRunner(t, runner.Config{Dir: dir, Gate: allow()})
	rep := execute(t, r, s.diagnosis(t, "a", other...))
	want(t, rep, v1alpha1.PhaseFailed, v1alpha1.ReasonOperationSetChanged, "1 Succeeded, 2 Refuted, 3 Succeeded")
	if record(rep, 3).Operation != "check-disk" { // it is reported as it was when it ran
		t.Errorf("%+v", rep.Records)
	}
	// Effects of operations and parameters are part of the plan.
	d := s.diagnosis(t, "b", hungTask()...)
	execute(t, newRunner(t, runner.Config{Dir: dir, Gate: &gate{}}), d)
	d.Parameters = map[string]string{"pid": "1"}
	if rep := execute(t, r, d); rep.Reason != v1alpha1.ReasonOperationSetChanged {
		t.Errorf("%+v", rep)
	}
	// If nothing has run yet, the new plan is used.
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("the agent ends"))
	if _, err := r.Execute(ctx, s.diagnosis(t, "c", hungTask()...)); err == nil {
		t.Fatal("not interrupted")
	}
	want(t, execute(t, r, s.diagnosis(t, "c", other...)), v1alpha1.PhaseSucceeded, v1alpha1.ReasonPathSucceeded, "1 Succeeded, 2 Succeeded")
}

// The disk with the checkpoint is lost, and the API has an intent: the repair may have been made.
func TestAnIntentWithoutACheckpoint(t *testing.T) {
	var s script
	dir := t.TempDir()
	d := s.diagnosis(t, "a", hungTask()...)
	d.Intended = []int{4}
	rep := execute(t, newRunner(t, runner.Config{Dir: dir, Gate: allow()}), d)
	want(t, rep, v1alpha1.PhaseUnknown, v1alpha1.ReasonOutcomeUnknown, "1 Succeeded, 2 Refuted, 3 Succeeded, 4 Unknown")
	// The checkpoint shows that the repair has not begun.
	d.ID, d.Intended = "b", nil
	execute(t, newRunner(t, runner.Config{Dir: dir, Gate: &gate{}}), d)
	d.Intended = []int{4}
	want(t, execute(t, newRunner(t, runner.Config{Dir: dir, Gate: allow()}), d), v1alpha1.PhaseSucceeded, v1alpha1.ReasonPathSucceeded,
		"1 Succeeded, 2 Refuted, 3 Succeeded, 4 Succeeded, 5 Succeeded")
}

func TestForget(t *testing.T) {
	var s script
	dir := t.TempDir()
	r := newRunner(t, runner.Config{Dir: dir, Gate: &gate{}})
	execute(t, r, s.diagnosis(t, "half", hungTask()...))
	execute(t, r, s.diagnosis(t, "ended", ": 1", "collect-a:"))
	if err := r.Forget("ended"); err != nil {
		t.Fatal(err)
	}
	if err := r.Forget("../half"); err == nil {
		t.Error("forgot something else")
	}
	if ids, err := runner.SavedIDs(dir); err != nil || len(ids) != 1 || ids[0] != "half" {
		t.Errorf("%v, %v", ids, err)
	}
}

// A run that the agent left in the middle of an operation, and that is not continued, gets the end
// that Close records; in the middle of a repair it is Unknown.
func TestClose(t *testing.T) {
	end := runner.End{Phase: v1alpha1.PhaseFailed, Reason: v1alpha1.ReasonOperationSetNotFound, Message: "it is gone", At: time.Now()}
	for node, c := range map[int]struct {
		phase           v1alpha1.Phase
		reason, records string
	}{
		3: {end.Phase, end.Reason, "1 Succeeded, 2 Refuted"},
		4: {v1alpha1.PhaseUnknown, v1alpha1.ReasonOutcomeUnknown, "1 Succeeded, 2 Refuted, 3 Succeeded, 4 Unknown"},
	} {
		var s script
		dir, killed := t.TempDir(), t.TempDir()
		s.behave = behaviour{node: func(context.Context, *runner.Inputs) (operation.Output, error) {
			return operation.Output{}, os.CopyFS(killed, os.DirFS(dir))
		}}
		execute(t, newRunner(t, runner.Config{Dir: dir, Gate: allow()}), s.diagnosis(t, "a", hungTask()...))
		r := newRunner(t, runner.Config{Dir: killed})
		for range 2 { // what has ended stays as it is
			rep, err := r.Close("a", end)
			if err != nil {
				t.Fatal(err)
			}
			want(t, rep, c.phase, c.reason, c.records)
			if !rep.Ended.Equal(end.At) {
				t.Errorf("ended at %s", rep.Ended)
			}
			saved, err := runner.ReadSaved(killed, "a")
			if err != nil {
				t.Fatal(err)
			}
			want(t, saved.Report, c.phase, c.reason, c.records)
		}
		if rep, err := r.Close("none", end); rep != nil || err != nil {
			t.Errorf("%+v, %v", rep, err)
		}
	}
}

// withChecksum returns a checkpoint with any body and a valid checksum.
func withChecksum(body []byte) []byte {
	sum := sha256.Sum256(body)
	return append([]byte("kernosis-checkpoint-1 "+hex.EncodeToString(sum[:])+"\n"), body...)
}
