package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/kernosis/kernosis/cmd/kernosis/agent"
	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/graph"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/runner"
	"github.com/kernosis/kernosis/diagnose/worker"
)

// The summary shows a repair that waits for its decision.
func TestSummaryOfAWaitingRun(t *testing.T) {
	dir := t.TempDir()
	r, err := runner.New(runner.Config{Dir: worker.Checkpoints(dir), Gate: waiting{}})
	if err != nil {
		t.Fatal(err)
	}
	g, err := graph.Build([]graph.Node{{ID: 0, To: []int{1}}, {ID: 1, Operation: "mend"}})
	if err != nil {
		t.Fatal(err)
	}
	mend := runner.Func(operation.Remediate, nil)
	if _, err := r.Execute(t.Context(), &runner.Diagnosis{ID: "d1", Graph: g, Steps: []runner.Step{{}, {Operation: mend}}}); err != nil {
		t.Fatal(err)
	}
	v, err := agent.ReadDiagnosis(dir, "d1")
	if err != nil {
		t.Fatal(err)
	}
	if got := summary(v); !strings.Contains(got, "WAITS     node 1: AwaitingDecision: of the controller\n") {
		t.Error(got)
	}
}

// waiting is a gate that never decides.
type waiting struct{}

func (waiting) Allow(context.Context, *runner.Action) (runner.Decision, error) {
	return runner.Decision{Verb: v1alpha1.RemediationWait, Reason: "AwaitingDecision", Message: "of the controller"}, nil
}

// Operations are reported in the order in which they ran; those after a repair that was not made come
// last.
func TestProgressIsInTheOrderOfTheRun(t *testing.T) {
	at := time.Unix(1000, 0)
	rep := &runner.Report{Records: []runner.Record{
		{ID: 1, Operation: "c", State: "WouldRun", Reason: "BehindWithheld"},
		{ID: 2, Operation: "b", State: "WouldRun", Start: at.Add(time.Second)},
		{ID: 3, Operation: "a", State: "Succeeded", Start: at, Attempts: 3, Results: map[string]string{"long": strings.Repeat("ä", 200)}},
		{ID: 4, Operation: "d", State: "Running", Start: at.Add(2 * time.Second)},
	}}
	var out bytes.Buffer
	p := &progress{w: &out, reported: map[int]bool{}, width: 1}
	p.changed(rep)
	p.changed(rep)
	var got []string
	for line := range strings.Lines(out.String()) {
		got = append(got, strings.Fields(line)[1])
		if len(line) > 250 || !utf8.ValidString(line) {
			t.Errorf("%q", line)
		}
	}
	if diff := cmp.Diff([]string{"a", "b", "c"}, got); diff != "" || !strings.Contains(out.String(), "  (3 tries) long=ää") {
		t.Errorf("%s\n%s", diff, &out)
	}
}
