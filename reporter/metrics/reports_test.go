package metrics

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/problem"
)

// A reason that no rule has was reported by a problem daemon.
func TestReportedReasonInGauge(t *testing.T) {
	m := New("test", "")
	p := NewProblems(m.Registry, []*detector.Rule{{Condition: "GPUUnhealthy", Reason: "ReportedProblem"}})
	for _, reason := range []string{"XidError", "FellOffBus"} {
		p.Transition(problem.Transition{Condition: &problem.Condition{Type: "GPUUnhealthy", Status: problem.True, Reason: reason, LastTransition: time.Now()}})
	}
	err := testutil.GatherAndCompare(m.Registry, strings.NewReader(`
# HELP problem_gauge Whether a specific type of problem is affecting the node or not.
# TYPE problem_gauge gauge
problem_gauge{reason="FellOffBus",type="GPUUnhealthy"} 1
problem_gauge{reason="ReportedProblem",type="GPUUnhealthy"} 0
problem_gauge{reason="XidError",type="GPUUnhealthy"} 0
`), "problem_gauge")
	if err != nil {
		t.Error(err)
	}
}
