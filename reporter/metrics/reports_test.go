package metrics

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kernosis/kernosis/detector/problem"
)

func TestReports(t *testing.T) {
	m := New("test", "")
	m.Reports(func() []ReportStats {
		return []ReportStats{
			{Reports: map[string]uint64{"forbidden": 2}},
			{Source: "gpu-monitor", Reports: map[string]uint64{"accepted": 7, "rate": 1}, Events: 5, Changes: 4, Expired: 3, Warnings: 2},
		}
	}, func() uint64 { return 9 })
	err := testutil.GatherAndCompare(m.Registry, strings.NewReader(`
# HELP kernosis_report_condition_changes_total Conditions in accepted reports whose status or reason had changed.
# TYPE kernosis_report_condition_changes_total counter
kernosis_report_condition_changes_total{source="gpu-monitor"} 4
# HELP kernosis_report_conditions_expired_total Conditions that became Unknown because they were not reported again in time.
# TYPE kernosis_report_conditions_expired_total counter
kernosis_report_conditions_expired_total{source="gpu-monitor"} 3
# HELP kernosis_report_connections_refused_total Connections to the report socket that were closed because their user had too many.
# TYPE kernosis_report_connections_refused_total counter
kernosis_report_connections_refused_total 9
# HELP kernosis_report_events_total Events in accepted reports, those included that were sent twice and count once.
# TYPE kernosis_report_events_total counter
kernosis_report_events_total{source="gpu-monitor"} 5
# HELP kernosis_report_fields_changed_total Fields of accepted reports that were cut or escaped.
# TYPE kernosis_report_fields_changed_total counter
kernosis_report_fields_changed_total{source="gpu-monitor"} 2
# HELP kernosis_reports_total Reports of problem daemons, by outcome (accepted, or refused: invalid, forbidden, conflict, too-large, rate, unavailable); without a source those of none that is configured, or by a user who may not.
# TYPE kernosis_reports_total counter
kernosis_reports_total{outcome="accepted",source="gpu-monitor"} 7
kernosis_reports_total{outcome="forbidden",source=""} 2
kernosis_reports_total{outcome="rate",source="gpu-monitor"} 1
`), "kernosis_report_condition_changes_total", "kernosis_report_conditions_expired_total", "kernosis_report_connections_refused_total",
		"kernosis_report_events_total", "kernosis_report_fields_changed_total", "kernosis_reports_total")
	if err != nil {
		t.Error(err)
	}
	if problems, err := testutil.GatherAndLint(m.Registry); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

// A reason that no rule has is that of a problem daemon.
func TestReportedReasonInGauge(t *testing.T) {
	m := New("test", "")
	p, err := NewProblems(m.Registry, []ProblemKind{{Condition: "GPUUnhealthy", Reason: "ReportedProblem"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, reason := range []string{"XidError", "FellOffBus"} {
		p.Transition(problem.Transition{Condition: &problem.Condition{Type: "GPUUnhealthy", Status: problem.True, Reason: reason, LastTransition: time.Now()}})
	}
	err = testutil.GatherAndCompare(m.Registry, strings.NewReader(`
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
