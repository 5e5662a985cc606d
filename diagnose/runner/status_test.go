package runner_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/graph"
	"github.com/kernosis/kernosis/diagnose/graph/draw"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/runner"
)

func statusOf(t *testing.T, rep *runner.Report) (s v1alpha1.DiagnosisStatus, bytes int) {
	t.Helper()
	rep.Status(&s)
	raw, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return s, len(raw)
}

func TestStatus(t *testing.T) {
	var s script
	g := &gate{Decision: runner.Decision{Verb: v1alpha1.RemediationWouldRun, Reason: "ObserveOnly", Message: "policy default: Observe"}}
	st, _ := statusOf(t, execute(t, newRunner(t, runner.Config{Gate: g}), s.diagnosis(t, "a", hungTask()...)))
	if st.Phase != v1alpha1.PhaseSucceeded || fmt.Sprint(st.SucceededPath, st.FailedPaths, " ", st.FailedPathCount) != "[1 3 4 5] [[1 2]] 1" ||
		*st.Verdict != (v1alpha1.Verdict{Reason: "Cause3", Message: "facts of check-disk"}) || st.Action != "repair-cordon (would)" ||
		st.StartTime == nil || st.CompletionTime == nil || len(st.Results) != 5 {
		t.Errorf("%+v", st)
	}
	if r := st.Results[1]; r.ID != 2 || r.Operation != "check-lock-no" || r.State != v1alpha1.ResultRefuted || r.Reason != "No" || r.Message != "evidence of check-lock-no" || r.Attempts != 1 || r.Duration == nil || r.StartTime == nil {
		t.Errorf("%+v", r)
	}
	if r := st.Results[2]; fmt.Sprint(r.Values) != "map[last:3 of3:check-disk]" || r.Truncated {
		t.Errorf("%+v", r)
	}
	if r := st.Results[3]; r.State != v1alpha1.ResultWouldRun || r.Message != "policy default: Observe" {
		t.Errorf("%+v", r)
	}
}

func TestStatusOfPathsThatFailAtOnce(t *testing.T) {
	var s script
	// 2^6 paths fail at one node, which is listed once.
	lines := []string{": 1 20", "collect-fails: 2 3"}
	for i := range 6 {
		top := 2 + 3*i
		lines = append(lines, fmt.Sprintf("collect-a: %d", top+2), fmt.Sprintf("collect-b: %d", top+2), fmt.Sprintf("collect-c: %d %d", top+3, top+4))
	}
	lines[len(lines)-1] = "collect-end:"
	lines = append(lines, "collect-other-fails:")
	st, _ := statusOf(t, execute(t, newRunner(t, runner.Config{}), s.diagnosis(t, "a", lines...)))
	if fmt.Sprint(st.FailedPaths, " ", st.FailedPathCount, " ", st.SucceededPath) != "[[1] [20]] 65 []" || st.Phase != v1alpha1.PhaseFailed {
		t.Errorf("%v %s", st.FailedPaths, st.FailedPathCount)
	}
}

// largest returns a report in which every record is as large as allowed, with text that is longer
// as JSON.
func largest(t *testing.T) *runner.Report {
	t.Helper()
	var s script
	results := map[string]string{}
	for k := range 64 {
		results[fmt.Sprintf("key%0120d", k)] = strings.Repeat("<\n\"", 700)
	}
	s.behave = behaviour{1: func(context.Context, *runner.Inputs) (operation.Output, error) {
		return operation.Output{Results: results, Verdict: &operation.Verdict{Reason: strings.Repeat("R", 200), Message: strings.Repeat("\\<&", 700)}}, nil
	}}
	rep := execute(t, newRunner(t, runner.Config{}), s.diagnosis(t, "a", ": 1", strings.Repeat("n", 253)+":"))
	full := rep.Records[0]
	if full.Truncated = false; len(full.Reason) != 128 || len(full.Message) < 1000 || len(full.Results) < 4 {
		t.Fatalf("%+v", full)
	}
	rep.Path, rep.Records = nil, nil
	for id := 1; id < graph.MaxNodes; id++ {
		rec := full
		rec.ID, rec.Repairs, rec.Attempts, rec.Duration = id, true, 11, 71*time.Hour+59*time.Minute+59*time.Second+999999*time.Microsecond
		rep.Records = append(rep.Records, rec)
		if id > 100 {
			rep.Path = append(rep.Path, id)
		}
	}
	rep.FailedCount.Exp(big.NewInt(2), big.NewInt(255), nil)
	for range graph.MaxPaths {
		rep.Failed = append(rep.Failed, rep.Path, slices.Clone(rep.Path[1:]))
	}
	return rep
}

func TestStatusIsBounded(t *testing.T) {
	rep := largest(t)
	st, bytes := statusOf(t, rep)
	t.Logf("%d KiB", bytes>>10)
	if bytes > 192<<10 {
		t.Errorf("%d bytes", bytes)
	}
	if len(st.Results) != graph.MaxNodes-1 {
		t.Errorf("%d results", len(st.Results))
	}
	messages := 0
	for _, r := range st.Results {
		if r.State != v1alpha1.ResultSucceeded || r.Operation == "" || r.Reason == "" || r.Duration == nil {
			t.Errorf("node %d lacks something", r.ID)
		}
		if r.Message != "" {
			if messages++; r.ID <= 100 {
				t.Errorf("node %d, which is not on the path, has a message before others", r.ID)
			}
		}
		if !r.Truncated { // each had more than a status may have of one node
			t.Errorf("node %d is not marked as truncated", r.ID)
		}
	}
	if messages == 0 || messages == len(st.Results) {
		t.Errorf("%d messages", messages)
	}
	// If there are few nodes, each gets its maximum.
	rep.Records, rep.Path = rep.Records[:10], nil
	st, _ = statusOf(t, rep)
	for _, r := range st.Results {
		n := 0
		for k, v := range r.Values {
			n += len(k) + len(v)
		}
		if n > v1alpha1.MaxResultBytes || n < v1alpha1.MaxResultBytes-200 || r.Message == "" || !r.Truncated {
			t.Errorf("node %d has %d bytes of values", r.ID, n)
		}
	}
	// A wide graph with many long failed paths.
	var s script
	lines := []string{": 1"}
	for i := 1; i < 250; i += 2 {
		lines = append(lines, fmt.Sprintf("collect-a: %d %d", i+1, i+2), fmt.Sprintf("check-b-no: %d", i+2))
	}
	lines = append(lines, "check-end-no:")
	rep = execute(t, newRunner(t, runner.Config{}), s.diagnosis(t, "wide", lines...))
	st, bytes = statusOf(t, rep)
	if bytes > 192<<10 || len(st.FailedPaths) > v1alpha1.MaxFailedPaths || len(st.FailedPaths) == 0 || len(st.FailedPathCount) < 30 {
		t.Errorf("%d bytes, %d failed paths of %s", bytes, len(st.FailedPaths), st.FailedPathCount)
	}
}

func TestDrawing(t *testing.T) {
	var s script
	d := s.diagnosis(t, "a", hungTask()...)
	st, _ := statusOf(t, execute(t, newRunner(t, runner.Config{}), d))
	st.Results = append(st.Results, v1alpha1.Result{ID: 77, State: v1alpha1.ResultFailed})
	got := draw.Text(draw.Of("hung-task-n7", d.Graph, func(id int) v1alpha1.Effect { return d.Steps[id].Operation.Effect }, &st))
	for _, want := range []string{
		"* 1  collect-stacks  → 2, 3         Collect · Succeeded\n",
		"  2  check-lock-no   → 4            Check · uses 1 · Refuted\n",
		"* 4  repair-cordon   → 5            Remediate · WouldRun\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}
