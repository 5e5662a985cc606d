package runner_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/graph"
	"github.com/kernosis/kernosis/diagnose/operation"
	"github.com/kernosis/kernosis/diagnose/runner"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		os.Exit(child())
	}
	os.Exit(testenv.CheckLeaks(func() int { return cluster.Run(m) }))
}

// script is a diagnosis with one node per line: ": 1" is the start, "check-disk <1: 4" a Check that
// depends on node 1 and leads to node 4. The name of an operation determines what it does:
// collect-, check-, repair-, and …-no, …-fails. ran lists the nodes that ran.
type script struct {
	mu  sync.Mutex
	ran []int
	// behave overrides what a node does.
	behave map[int]func(ctx context.Context, in *runner.Inputs) (operation.Output, error)
}

func (s *script) runs() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.ran)
}

func (s *script) diagnosis(tb testing.TB, id string, lines ...string) *runner.Diagnosis {
	if tb != nil { // a child process has none
		tb.Helper()
	}
	nodes := make([]graph.Node, len(lines))
	steps := make([]runner.Step, len(lines))
	for i, line := range lines {
		head, to, _ := strings.Cut(line, ":")
		name, dependences, _ := strings.Cut(strings.TrimSpace(head), "<")
		name = strings.TrimSpace(name)
		nodes[i] = graph.Node{ID: i, To: ints(to), Operation: name, Dependences: ints(dependences)}
		steps[i] = runner.Step{Operation: s.operation(i, name)}
	}
	g, err := graph.Build(nodes)
	if err != nil {
		panic(err)
	}
	return &runner.Diagnosis{ID: id, Graph: g, Steps: steps}
}

func (s *script) operation(id int, name string) runner.Operation {
	effect := operation.Collect
	switch {
	case strings.HasPrefix(name, "check-"):
		effect = operation.Check
	case strings.HasPrefix(name, "repair-"):
		effect = operation.Remediate
	}
	return runner.Operation{Effect: effect, Run: func(ctx context.Context, in *runner.Inputs) (operation.Output, error) {
		s.mu.Lock()
		s.ran = append(s.ran, id)
		f := s.behave[id]
		s.mu.Unlock()
		switch {
		case f != nil:
			return f(ctx, in)
		case strings.HasSuffix(name, "-no"):
			return operation.Output{}, &operation.Refuted{Reason: "No", Message: "evidence of " + name}
		case strings.HasSuffix(name, "-fails"):
			return operation.Output{}, fmt.Errorf("%s can't look", name)
		}
		out := operation.Output{Results: map[string]string{"of" + strconv.Itoa(id): name, "last": strconv.Itoa(id)}}
		if effect == operation.Check {
			out.Verdict = &operation.Verdict{Reason: "Cause" + strconv.Itoa(id), Message: "facts of " + name}
		}
		return out, nil
	}}
}

func ints(s string) []int {
	var out []int
	for f := range strings.FieldsSeq(s) {
		var n int
		if _, err := fmt.Sscan(f, &n); err != nil {
			panic(err)
		}
		out = append(out, n)
	}
	return out
}

// gate is a gate with a fixed answer.
type gate struct {
	runner.Decision
	err   error
	mu    sync.Mutex
	asked []runner.Action
}

func (g *gate) Allow(_ context.Context, a *runner.Action) (runner.Decision, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asked = append(g.asked, *a)
	return g.Decision, g.err
}

func allow() *gate { return &gate{Decision: runner.Decision{Verb: v1alpha1.RemediationRun}} }

func newRunner(tb testing.TB, c runner.Config) *runner.Runner {
	tb.Helper()
	if c.Dir == "" {
		c.Dir = tb.TempDir()
	}
	r, err := runner.New(c)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

func execute(tb testing.TB, r *runner.Runner, d *runner.Diagnosis) *runner.Report {
	tb.Helper()
	rep, err := r.Execute(tb.Context(), d)
	if err != nil {
		tb.Fatal(err)
	}
	return rep
}

// states formats the states of the records: "1 Succeeded, 2 Refuted".
func states(rep *runner.Report) string {
	var out []string
	for _, rec := range rep.Records {
		out = append(out, fmt.Sprint(rec.ID, " ", rec.State))
	}
	return strings.Join(out, ", ")
}

func want(tb testing.TB, rep *runner.Report, phase v1alpha1.Phase, reason, records string) {
	tb.Helper()
	if rep.Phase != phase || rep.Reason != reason || states(rep) != records {
		tb.Errorf("%s %s (%s): %s\nwant %s %s: %s", rep.Phase, rep.Reason, rep.Message, states(rep), phase, reason, records)
	}
}

func record(rep *runner.Report, id int) runner.Record {
	for _, rec := range rep.Records {
		if rec.ID == id {
			return rec
		}
	}
	return runner.Record{}
}

func sortedKeys(m map[string]string) string { return strings.Join(slices.Sorted(maps.Keys(m)), " ") }
