package agent

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/logsource"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/reporter/metrics"
)

// The gauges of conditions show current states, not changes: after a restart that changes nothing
// they are present, but not those of a condition whose rules are gone.
func TestConditionMetrics(t *testing.T) {
	const rules = `
conditions:
  Broken: {healthyReason: Whole, healthyMessage: whole}
rules:
- {name: broken, events: [oomkill], condition: Broken, reason: FellOver, message: m, latched: true}
`
	set := rulesOf(t, rules)
	log := logsource.Config{Name: "kern", Plugin: logsource.File, Path: "/nonexistent"}
	gauges := func(a *pipeline, want string) {
		t.Helper()
		if want != "" {
			want = "# HELP problem_gauge Whether a specific type of problem is affecting the node or not.\n# TYPE problem_gauge gauge\n" + want +
				"# HELP kernosis_condition 1 for the status a node condition has now, 0 for the others.\n# TYPE kernosis_condition gauge\n" +
				"kernosis_condition{status=\"False\",type=\"Broken\"} 0\nkernosis_condition{status=\"True\",type=\"Broken\"} 1\nkernosis_condition{status=\"Unknown\",type=\"Broken\"} 0\n"
		}
		if err := testutil.GatherAndCompare(a.metrics.Registry, strings.NewReader(want), "kernosis_condition", "problem_gauge"); err != nil {
			t.Error(err)
		}
	}
	first, _ := newAgentOf(t, set, log)
	first.observe(&event.Event{Kind: event.OOMKill, Time: time.Now(), BootTime: 1, Task: &event.Task{PID: 5}, OOMKill: &event.OOMKillData{}})
	if err := first.save(t.Context()); err != nil {
		t.Fatal(err)
	}

	second, _ := newAgentOf(t, set, log)
	second.stateDir = first.stateDir
	if err := second.restore(); err != nil {
		t.Fatal(err)
	}
	if c := second.conditions(); len(c) != 1 || c[0].Status != problem.True {
		t.Fatalf("conditions %+v", c)
	}
	second.problems = metrics.NewProblems(second.metrics.Registry, set.Rules())
	second.reportConditions()
	gauges(second, fmt.Sprintf("problem_gauge{reason=%q,type=%q} 1\n", "FellOver", "Broken"))

	second.replace(rulesOf(t, "rules: []\n"))
	gauges(second, "")
}
