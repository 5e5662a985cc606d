package agent

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/graph"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/runner"
	"github.com/kernosis/kernosis/diagnose/worker"
	"github.com/kernosis/kernosis/reporter/web"
)

// The page shows a run in the state folder with its steps, withheld repairs, and graph.
func TestRunsOnThePage(t *testing.T) {
	state := t.TempDir()
	byHand := runsByHandDir(state)
	nodes := []graph.Node{{ID: 0, To: []int{1}}, {ID: 1, Operation: "ask", To: []int{2, 3}}, {ID: 2, Operation: "check-lock-holder"}, {ID: 3, Operation: "mend"}}
	g, err := graph.Build(nodes)
	if err != nil {
		t.Fatal(err)
	}
	ask := runner.Func(operation.Collect, func(context.Context, *operation.Call) (operation.Output, error) {
		return operation.Output{Results: map[string]string{"found": "two words"}}, nil
	})
	const none = "NoKnownLockHolder"
	const why = "no lock holder was given: the task waits for no lock whose holder the kernel records"
	holder := runner.Func(operation.Check, func(context.Context, *operation.Call) (operation.Output, error) {
		return operation.Output{}, operation.RefutedBy(none, why)
	})
	r, err := runner.New(runner.Config{Dir: worker.Checkpoints(byHand), Gate: observes{}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Execute(t.Context(), &runner.Diagnosis{
		ID: "d1", Graph: g, Parameters: map[string]string{"subject": "pg"},
		Steps: []runner.Step{{}, {Operation: ask}, {Operation: holder}, {Operation: runner.Func(operation.Remediate, nil)}},
	}); err != nil {
		t.Fatal(err)
	}
	d := &pageDiagnoses{stateDir: state}
	list, all, err := d.list(10)
	if err != nil || all != 1 || len(list) != 1 {
		t.Fatalf("%d of %d, %v", len(list), all, err)
	}
	got := list[0]
	if got.Started.IsZero() || got.Ended.Before(got.Started) || got.Steps[0].Took <= 0 {
		t.Errorf("times of %+v", got)
	}
	got.Started, got.Ended = time.Time{}, time.Time{}
	for i := range got.Steps {
		got.Steps[i].Took = 0
	}
	want := web.Diagnosis{
		ID: "d1", Name: "d1", Subject: "pg", Phase: "Succeeded", Message: "No verdict: no operation on the path checks for a cause.",
		Excluded: []web.Cause{{Reason: none, Message: why}}, Path: "1 ask → 3 mend", Graph: true,
		Steps: []web.Step{
			{ID: 1, Operation: "ask", Effect: "Collect", Result: "done", Text: `found="two words"`, OnPath: true},
			{ID: 2, Operation: "check-lock-holder", Effect: "Check", Result: "no", Text: none + ": " + why},
			{ID: 3, Operation: "mend", Effect: "Remediate", Result: "would run", Text: "ObserveOnly: run it with --allow-repairs", OnPath: true},
		},
		Repairs: []string{"mend: would run: run it with --allow-repairs"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	svg, err := d.drawing("d1")
	if err != nil || !strings.Contains(string(svg), "WouldRun") {
		t.Errorf("%s, %v", svg, err)
	}
	for _, id := range []string{"d2", "../d1", "by-hand/checkpoints/d1", ""} {
		if _, err := d.drawing(id); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("drawing of %q: %v", id, err)
		}
	}
	if err := os.WriteFile(runner.SavedPath(worker.Checkpoints(byHand), "d1"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if list, _, err = d.list(10); err != nil || list[0].Phase != "Unreadable" || list[0].Message == "" {
		t.Errorf("damaged: %+v, %v", list, err)
	}
	if list, all, err = d.list(0); err != nil || len(list) != 0 || all != 1 || len(d.read) != 0 {
		t.Errorf("none wanted: %d of %d, %v, %d kept", len(list), all, err, len(d.read))
	}
}

// observes is a gate that allows no repair.
type observes struct{}

func (observes) Allow(context.Context, *runner.Action) (runner.Decision, error) {
	return runner.Decision{Verb: v1alpha1.RemediationWouldRun, Reason: v1alpha1.ReasonObserveOnly, Message: "run it with --allow-repairs"}, nil
}

// waits is a gate that never decides.
type waits struct{}

func (waits) Allow(context.Context, *runner.Action) (runner.Decision, error) {
	return runner.Decision{Verb: v1alpha1.RemediationWait, Reason: "AwaitingDecision", Message: "of the controller"}, nil
}

func TestAWaitingRunOnThePage(t *testing.T) {
	state := t.TempDir()
	r, err := runner.New(runner.Config{Dir: worker.Checkpoints(runsByHandDir(state)), Gate: waits{}})
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
	list, _, err := (&pageDiagnoses{stateDir: state}).list(10)
	if err != nil || len(list) != 1 || list[0].Message != "Waiting: AwaitingDecision: of the controller" {
		t.Errorf("%+v, %v", list, err)
	}
}

// While Diagnoses are read from a disk that hangs, forget does not wait: otherwise the page would
// not answer any more.
func TestPageForgetsWithoutWaiting(t *testing.T) {
	d := &pageDiagnoses{read: map[string]readRun{"a": {}}}
	d.mu.Lock() // as list holds it while it reads
	d.forget()
	d.mu.Unlock()
	if d.forget(); d.read != nil {
		t.Error("nothing was forgotten")
	}
}
