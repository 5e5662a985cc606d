package metrics

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/problem"
)

// node-problem-detector's metrics: every kind starts with a zero, suppressed problems are not
// counted, and the series of removed condition types are deleted.
func TestProblems(t *testing.T) {
	r := prometheus.NewRegistry()
	p := NewProblems(r, []*detector.Rule{{Reason: "Hiccup"}, {Condition: "Broken", Reason: "FellOver"}, {Condition: "Broken", Reason: "Burnt"}, {Condition: "Gone", Reason: "Left"}})
	for _, hiddenBy := range []string{"", "cause"} {
		p.Transition(problem.Transition{Problem: &problem.Problem{Reason: "Hiccup", State: problem.Firing, SuppressedBy: hiddenBy}})
	}
	p.Transition(problem.Transition{Problem: &problem.Problem{Reason: "Hiccup", State: problem.Firing}, Again: true}) // a mute ended
	p.Transition(problem.Transition{Condition: &problem.Condition{Type: "Gone", Status: problem.True, Reason: "Left"}})
	p.Transition(problem.Transition{Condition: &problem.Condition{Type: "Broken", Status: problem.True, Reason: "Burnt"}})
	p.Conditions([]problem.Condition{{Type: "Broken", Status: problem.True, Reason: "FellOver"}})
	const want = `
# HELP problem_counter Number of times a specific type of problem has occurred.
# TYPE problem_counter counter
problem_counter{reason="Burnt"} 0
problem_counter{reason="FellOver"} 0
problem_counter{reason="Hiccup"} 1
problem_counter{reason="Left"} 0
# HELP problem_gauge Whether a specific type of problem is affecting the node or not.
# TYPE problem_gauge gauge
problem_gauge{reason="Burnt",type="Broken"} 0
problem_gauge{reason="FellOver",type="Broken"} 1
`
	if err := testutil.GatherAndCompare(r, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	p.Known([]*detector.Rule{{Condition: "Gone", Reason: "Left"}}) // and it exists again
	if n := testutil.CollectAndCount(p.gauge); n != 3 {
		t.Errorf("%d gauges", n)
	}
}
