package metrics

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector/problem"
)

func TestMetrics(t *testing.T) {
	m := New("v1", "")
	m.Event(&event.Event{Kind: event.OOMKill}, time.Microsecond)
	m.Event(&event.Event{Kind: event.Lost, Lost: &event.LostData{Stem: "diskio", Reason: "ring-full", Count: 5}}, 0)
	m.Event(&event.Event{Kind: event.Source, SourceUp: &event.SourceData{Stem: "diskio"}}, 0)
	m.Event(&event.Event{Kind: event.Source, SourceUp: &event.SourceData{Stem: "log"}}, 0) // not a source
	m.Event(&event.Event{Kind: event.Source, SourceUp: &event.SourceData{Stem: "service/kubelet"}}, 0)
	m.Event(&event.Event{Kind: event.Source, SourceUp: &event.SourceData{Stem: "service/kubelet", Gone: true}}, 0)
	m.Event(&event.Event{Kind: event.Check, Check: &event.CheckData{Check: "ntp", Status: event.CheckUnknown}}, 0)
	m.Event(&event.Event{Kind: event.Check, Check: &event.CheckData{Check: "dns", Status: event.CheckProblem}}, 0)
	m.Handled(time.Millisecond)
	m.Transition(problem.Transition{Problem: &problem.Problem{Rule: "oom-kill", Reason: "OOMKilling", Severity: problem.Warning, State: problem.Firing}})
	m.Transition(problem.Transition{Problem: &problem.Problem{Rule: "oom-kill", Reason: "OOMKilling", State: problem.Firing}, Again: true})
	m.Transition(problem.Transition{Problem: &problem.Problem{Rule: "torn", Reason: "Torn", Severity: problem.Warning, State: problem.Firing, SuppressedBy: "cause"}})
	m.Transition(problem.Transition{Problem: &problem.Problem{Rule: "torn", Reason: "Torn", Severity: problem.Critical, State: problem.Firing}, Times: 3})
	m.Transition(problem.Transition{Condition: &problem.Condition{Type: "KernelDeadlock", Status: problem.True}})
	m.Transition(problem.Transition{Condition: &problem.Condition{Type: "Gone", Status: problem.True}})
	m.Conditions([]problem.Condition{{Type: "KernelDeadlock", Status: problem.False}}) // the rules of Gone were removed
	m.Firing([]problem.Problem{{Rule: "a", Reason: "A", Severity: problem.Info}, {Rule: "a", Reason: "A", Severity: problem.Info, Subject: "sda"}})
	m.Firing([]problem.Problem{{Rule: "b", Reason: "B", Severity: problem.Critical, Subject: "pod shop/web-1"}}) // a no longer fires
	m.Rules(map[string]uint64{"a": 3}, map[string]uint64{"b": 4}, map[string]uint64{"c": 5})
	m.OutputErrors(1)
	if losses := m.Losses(); len(losses) != 1 || losses[0] != (Loss{"diskio", "ring-full", 5}) {
		t.Errorf("losses %v", losses)
	}
	const want = `
# HELP kernosis_condition 1 for the status a node condition has now, 0 for the others.
# TYPE kernosis_condition gauge
kernosis_condition{status="False",type="KernelDeadlock"} 1
kernosis_condition{status="True",type="KernelDeadlock"} 0
kernosis_condition{status="Unknown",type="KernelDeadlock"} 0
# HELP kernosis_output_errors_total Lines that could not be written to the standard output.
# TYPE kernosis_output_errors_total counter
kernosis_output_errors_total 1
# HELP kernosis_problem_info 1 for each problem that is firing now, with the pod, device or task that it affects; at most 100, the most severe first.
# TYPE kernosis_problem_info gauge
kernosis_problem_info{reason="B",rule="b",severity="critical",subject="pod shop/web-1"} 1
# HELP kernosis_problem_occurrences_total Occurrences of problems, counted as in problem_counter, by rule, reason and severity.
# TYPE kernosis_problem_occurrences_total counter
kernosis_problem_occurrences_total{reason="OOMKilling",rule="oom-kill",severity="warning"} 1
kernosis_problem_occurrences_total{reason="Torn",rule="torn",severity="critical"} 3
# HELP kernosis_problem_transitions_total State changes of problems, by rule, reason and the state entered; a temporary problem enters firing at each occurrence.
# TYPE kernosis_problem_transitions_total counter
kernosis_problem_transitions_total{reason="OOMKilling",rule="oom-kill",state="firing"} 1
kernosis_problem_transitions_total{reason="Torn",rule="torn",state="firing"} 4
# HELP kernosis_problems Problems that are firing now, by rule.
# TYPE kernosis_problems gauge
kernosis_problems{rule="b"} 1
# HELP kernosis_records_lost_total Kernel records and log lines that were lost, by source and reason (ring-full, recursion, malformed, foreign-wire; for logs also overrun, truncated, rotated, rate-limit and others).
# TYPE kernosis_records_lost_total counter
kernosis_records_lost_total{reason="ring-full",stem="diskio"} 5
# HELP kernosis_rule_errors Evaluations of a rule that failed since the agent started.
# TYPE kernosis_rule_errors gauge
kernosis_rule_errors{rule="a"} 3
# HELP kernosis_rule_events_limited Events beyond a rule's rateLimit since the agent started, which were recorded together.
# TYPE kernosis_rule_events_limited gauge
kernosis_rule_events_limited{rule="c"} 5
# HELP kernosis_rule_groups_overflowed Events beyond a rule's limit of groups since the agent started.
# TYPE kernosis_rule_groups_overflowed gauge
kernosis_rule_groups_overflowed{rule="b"} 4
# HELP kernosis_source_up 1 if the source can detect its faults, 0 if it is blind.
# TYPE kernosis_source_up gauge
kernosis_source_up{stem="check/dns"} 1
kernosis_source_up{stem="check/ntp"} 0
kernosis_source_up{stem="diskio"} 0
`
	names := []string{
		"kernosis_condition", "kernosis_output_errors_total",
		"kernosis_problem_info", "kernosis_problem_occurrences_total", "kernosis_problem_transitions_total", "kernosis_problems", "kernosis_records_lost_total", "kernosis_rule_errors",
		"kernosis_rule_events_limited", "kernosis_rule_groups_overflowed", "kernosis_source_up",
	}
	if err := testutil.GatherAndCompare(m.Registry, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
	if n, err := testutil.GatherAndCount(m.Registry, "kernosis_events_total"); err != nil || n != len(event.Kinds()) {
		t.Errorf("%d kinds counted (%v), want all %d, zeros too", n, err, len(event.Kinds()))
	}
	// The same checks as "promtool check metrics".
	problems, err := testutil.GatherAndLint(m.Registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}
