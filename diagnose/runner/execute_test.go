package runner_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/runner"
)

// hungTask is a set as users write it: a repair after the cause, and one after another cause.
func hungTask() []string {
	return []string{": 1", "collect-stacks: 2 3", "check-lock-no <1: 4", "check-disk <1: 4", "repair-cordon: 5", "check-after:"}
}

func TestObserved(t *testing.T) {
	var s script
	r := newRunner(t, runner.Config{Gate: &gate{Decision: runner.Decision{Verb: v1alpha1.RemediationWouldRun, Reason: "ObserveOnly", Message: "policy default: Observe"}}})
	rep := execute(t, r, s.diagnosis(t, "a", hungTask()...))
	want(t, rep, v1alpha1.PhaseSucceeded, v1alpha1.ReasonPathSucceeded, "1 Succeeded, 2 Refuted, 3 Succeeded, 4 WouldRun, 5 WouldRun")
	if got := fmt.Sprint(rep.Path, rep.Failed, rep.FailedCount, s.runs()); got != "[1 3 4 5] [[1 2 4 5]] 1 [1 2 3]" {
		t.Error(got)
	}
	if rep.Verdict == nil || rep.Verdict.Reason != "Cause3" || rep.Verdict.Message != "facts of check-disk" {
		t.Errorf("verdict %+v", rep.Verdict)
	}
	if no := rep.Excluded(); len(no) != 1 || no[0].ID != 2 || no[0].Operation != "check-lock-no" || no[0].Reason != "No" || no[0].Message != "evidence of check-lock-no" {
		t.Errorf("excluded %+v", no)
	}
	if m := record(rep, 4).Message; m != "policy default: Observe" {
		t.Error(m)
	}
	if m := record(rep, 5).Message; m != "follows the repair of node 4, which was not made" {
		t.Error(m)
	}
}

func TestWithoutAGateNoRepairRuns(t *testing.T) {
	var s script
	rep := execute(t, newRunner(t, runner.Config{}), s.diagnosis(t, "a", hungTask()...))
	want(t, rep, v1alpha1.PhaseSucceeded, v1alpha1.ReasonPathSucceeded, "1 Succeeded, 2 Refuted, 3 Succeeded, 4 WouldRun, 5 WouldRun")
}

func TestRepaired(t *testing.T) {
	var s script
	g, intents := allow(), 0
	r := newRunner(t, runner.Config{Gate: g, Intent: func(_ context.Context, a *runner.Action) error {
		intents++
		if len(s.runs()) != 3 {
			t.Error("intent is reported after the repair")
		}
		return nil
	}})
	d := s.diagnosis(t, "a", hungTask()...)
	d.Parameters = map[string]string{"pid": "811"}
	rep := execute(t, r, d)
	want(t, rep, v1alpha1.PhaseSucceeded, v1alpha1.ReasonPathSucceeded, "1 Succeeded, 2 Refuted, 3 Succeeded, 4 Succeeded, 5 Succeeded")
	if rep.Verdict.Reason != "Cause5" || intents != 1 || len(g.asked) != 1 {
		t.Errorf("verdict %v, %d intents, %d questions", rep.Verdict, intents, len(g.asked))
	}
	if a := g.asked[0]; a.Diagnosis != "a" || a.ID != 4 || a.Operation != "repair-cordon" {
		t.Errorf("asked for %+v", a)
	}
	// A run that has ended is reported again, and nothing runs.
	ran := len(s.runs())
	again := execute(t, r, d)
	if len(s.runs()) != ran || states(again) != states(rep) || again.Ended.IsZero() || !again.Ended.Equal(rep.Ended) {
		t.Errorf("ran %v, %s", s.runs(), states(again))
	}
}

func TestStoppedBehindARepair(t *testing.T) {
	s := script{}
	r := newRunner(t, runner.Config{Gate: allow()})
	rep := execute(t, r, s.diagnosis(t, "a", ": 1 3", "repair-a: 2", "check-b-no:", "collect-c:"))
	want(t, rep, v1alpha1.PhaseFailed, v1alpha1.ReasonRemediationIncomplete, "1 Succeeded, 2 Refuted")
}

func TestNoPath(t *testing.T) {
	var s script
	rep := execute(t, newRunner(t, runner.Config{}), s.diagnosis(t, "a", ": 1 2", "check-a-no:", "collect-b-fails: 3 4", "collect-c:", "collect-d:"))
	want(t, rep, v1alpha1.PhaseFailed, v1alpha1.ReasonNoPathSucceeded, "1 Refuted, 2 Failed")
	if rep.FailedCount.Int64() != 3 || rep.Verdict != nil || record(rep, 2).Message != "collect-b-fails can't look" {
		t.Errorf("%v paths failed, %v, %q", rep.FailedCount, rep.Verdict, record(rep, 2).Message)
	}
}

func TestAnOperationIsGivenItsDependencesOnly(t *testing.T) {
	var given []string
	s := script{behave: map[int]func(context.Context, *runner.Inputs) (operation.Output, error){
		4: func(_ context.Context, in *runner.Inputs) (operation.Output, error) {
			given = append(given, sortedKeys(in.Results), in.Results["last"], sortedKeys(in.Parameters))
			in.Results["of1"], in.Parameters["p"] = "changed", "changed"
			return operation.Output{}, nil
		},
		5: func(_ context.Context, in *runner.Inputs) (operation.Output, error) {
			given = append(given, sortedKeys(in.Results), in.Results["of1"], in.Parameters["p"])
			return operation.Output{}, nil
		},
	}}
	d := s.diagnosis(t, "a", ": 1", "collect-a: 2", "collect-b: 3", "collect-c: 4", "collect-d <3 1: 5", "collect-e <1:")
	d.Parameters = map[string]string{"p": "v"}
	execute(t, newRunner(t, runner.Config{}), d)
	// The later dependence in the node's list wins.
	if got := strings.Join(given, "|"); got != "last of1 of3|1|p|last of1|collect-a|v" {
		t.Error(got)
	}
}

func TestBuiltinsTakeFixedParametersFirst(t *testing.T) {
	var got operation.Values
	b := &operation.Builtin{
		Name: "b", Effect: operation.Check,
		Parameters: []operation.Parameter{{Name: "fixed"}, {Name: "given"}, {Name: "result"}, {Name: "other", Default: "default"}},
		Run: func(_ context.Context, call *operation.Call) (operation.Output, error) {
			got = call.Parameters
			return operation.Output{}, nil
		},
	}
	o := runner.Builtin(b, map[string]string{"fixed": "1"})
	in := &runner.Inputs{Parameters: map[string]string{"fixed": "2", "given": "2"}, Results: map[string]string{"fixed": "3", "given": "3", "result": "3"}}
	if _, err := o.Run(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, operation.Values{"fixed": "1", "given": "2", "result": "3", "other": "default"}) || o.Effect != operation.Check {
		t.Error(got)
	}
	o = runner.Func(operation.Remediate, b.Run)
	if _, err := o.Run(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, operation.Values{"fixed": "2", "given": "2", "result": "3"}) || o.Effect != operation.Remediate {
		t.Error(got)
	}
}

func TestDiagnosesThatCanNotBegin(t *testing.T) {
	var s script
	r := newRunner(t, runner.Config{})
	bad := s.diagnosis(t, "../../etc/passwd", ": 1", "collect-a:")
	bad.Steps[1].Operation = runner.Operation{}
	bad.Intended = []int{7}
	_, err := r.Execute(t.Context(), bad)
	for _, part := range []string{`id "../../etc/passwd"`, `node 1: operation "collect-a" is not resolved`, "intended: there is no node 7"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("no %s in %v", part, err)
		}
	}
	d := s.diagnosis(t, "a", ": 1", "collect-a:")
	s.behave = map[int]func(context.Context, *runner.Inputs) (operation.Output, error){
		1: func(ctx context.Context, _ *runner.Inputs) (operation.Output, error) {
			_, err := r.Execute(ctx, d)
			if !errors.Is(err, runner.ErrActive) || !errors.Is(r.Forget("a"), runner.ErrActive) {
				t.Errorf("executed twice at once: %v", err)
			}
			return operation.Output{}, nil
		},
	}
	execute(t, r, d)
	if _, err := runner.New(runner.Config{}); err == nil {
		t.Error("no folder")
	}
}

// A diagnosis runs on a node whose disk refuses writes. A repair is withheld, because without a
// checkpoint it could be made twice.
func TestWithoutADisk(t *testing.T) {
	dir := t.TempDir()
	for _, id := range []string{"a", "b"} { // blocks writing the checkpoint
		if err := os.Mkdir(filepath.Join(dir, id+".checkpoint.new"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	var s script
	r := newRunner(t, runner.Config{Dir: dir, Gate: allow()})
	rep, err := r.Execute(t.Context(), s.diagnosis(t, "b", ": 1", "collect-a: 2", "check-b:"))
	if err != nil {
		t.Fatal(err)
	}
	want(t, rep, v1alpha1.PhaseSucceeded, v1alpha1.ReasonPathSucceeded, "1 Succeeded, 2 Succeeded")
	rep = execute(t, r, s.diagnosis(t, "a", hungTask()...))
	want(t, rep, v1alpha1.PhaseSucceeded, v1alpha1.ReasonPathSucceeded, "1 Succeeded, 2 Refuted, 3 Succeeded, 4 Withheld, 5 WouldRun")
	if rec := record(rep, 4); rec.Reason != "NoCheckpoint" || !strings.Contains(rec.Message, "is a directory") || rep.Unsaved == nil || r.Stats().Unsaved == 0 {
		t.Errorf("%+v, %v", rec, rep.Unsaved)
	}
	// The run does not wait for the gate: without a checkpoint all operations would run again.
	r = newRunner(t, runner.Config{Dir: dir, Gate: &gate{}})
	rep = execute(t, r, s.diagnosis(t, "a", hungTask()...))
	want(t, rep, v1alpha1.PhaseSucceeded, v1alpha1.ReasonPathSucceeded, "1 Succeeded, 2 Refuted, 3 Succeeded, 4 Withheld, 5 WouldRun")
}

func TestStats(t *testing.T) {
	var s script
	r := newRunner(t, runner.Config{})
	execute(t, r, s.diagnosis(t, "a", hungTask()...))
	if st := r.Stats(); fmt.Sprint(st.Operations) != "map[Refuted:1 Succeeded:2 WouldRun:1]" || st.Hanging != 0 {
		t.Errorf("%+v", st)
	}
}

// artifacts records the nodes whose artifacts were requested.
type artifacts struct{ nodes, ended []int }

func (a *artifacts) Of(id int, _ string) (operation.Artifacts, error) {
	a.nodes = append(a.nodes, id)
	return nil, nil
}
func (a *artifacts) End() { a.ended = append(a.ended, len(a.nodes)) }

func TestArtifacts(t *testing.T) {
	a, fail := &artifacts{}, error(nil)
	r := newRunner(t, runner.Config{Artifacts: func(id string) (runner.Artifacts, error) {
		if id != "a" && id != "b" {
			t.Errorf("artifacts of %s", id)
		}
		return a, fail
	}})
	var s script
	execute(t, r, s.diagnosis(t, "a", ": 1", "collect-a: 2", "check-b:"))
	if !slices.Equal(a.nodes, []int{1, 2}) || !slices.Equal(a.ended, []int{2}) {
		t.Errorf("%+v", a)
	}
	fail = errors.New("no room")
	s.behave = behaviour{1: func(_ context.Context, in *runner.Inputs) (operation.Output, error) {
		_, err := in.Artifacts.Create("x.txt")
		return operation.Output{}, err
	}}
	rep := execute(t, r, s.diagnosis(t, "b", ": 1", "collect-a:"))
	if rec := record(rep, 1); rec.Message != operation.ErrArtifactBudget.Error() || len(a.ended) != 1 {
		t.Errorf("%+v", rec)
	}
}

// Changed is called for each running node, and at the end.
func TestChanges(t *testing.T) {
	var s script
	var reported []string
	r := newRunner(t, runner.Config{Changed: func(rep *runner.Report) {
		reported = append(reported, fmt.Sprint(rep.Phase, " ", rep.Running, ": ", states(rep)))
	}})
	execute(t, r, s.diagnosis(t, "a", ": 1", "collect-a: 2 3", "check-b-no:", "check-c:"))
	want := []string{
		"Running 1: 1 Running",
		"Running 2: 1 Succeeded, 2 Running",
		"Running 3: 1 Succeeded, 2 Refuted, 3 Running",
		"Succeeded 0: 1 Succeeded, 2 Refuted, 3 Succeeded",
	}
	if !slices.Equal(reported, want) {
		t.Errorf("told\n%s", strings.Join(reported, "\n"))
	}
}
