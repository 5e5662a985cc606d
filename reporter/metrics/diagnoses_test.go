package metrics

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestDiagnoses(t *testing.T) {
	m := New("test", "")
	d := m.Diagnoses(func() DiagnoseStats {
		return DiagnoseStats{
			Triggers: map[string]TriggerStats{"oom-kill": {Wanted: 3, Withheld: map[string]uint64{"cooldown": 9}}},
			Refused:  1, Taken: 4, Made: 2, Dropped: map[string]uint64{"full": 5}, Ended: map[string]uint64{"Succeeded": 1},
			Writes: map[string]uint64{"away": 7}, Unsaved: 8, Running: 1, Waiting: 2, Untold: 6,
		}
	})
	d.Ended(2500 * time.Millisecond)
	const want = `
# HELP kernosis_diagnoses_dropped_total Diagnoses that were not run or not made known, by reason.
# TYPE kernosis_diagnoses_dropped_total counter
kernosis_diagnoses_dropped_total{reason="full"} 5
# HELP kernosis_diagnoses_ended_total Diagnoses that have ended, by phase.
# TYPE kernosis_diagnoses_ended_total counter
kernosis_diagnoses_ended_total{phase="Succeeded"} 1
# HELP kernosis_diagnoses_untold Diagnoses that have ended, of which the API server does not know.
# TYPE kernosis_diagnoses_untold gauge
kernosis_diagnoses_untold 6
# HELP kernosis_trigger_diagnoses_total Diagnoses that triggers have asked for, by trigger.
# TYPE kernosis_trigger_diagnoses_total counter
kernosis_trigger_diagnoses_total{trigger="oom-kill"} 3
# HELP kernosis_trigger_withheld_total Diagnoses that a trigger would have asked for, but for its bounds, by trigger and reason.
# TYPE kernosis_trigger_withheld_total counter
kernosis_trigger_withheld_total{reason="cooldown",trigger="oom-kill"} 9
`
	if err := testutil.GatherAndCompare(m.Registry, strings.NewReader(want), "kernosis_diagnoses_dropped_total",
		"kernosis_diagnoses_ended_total", "kernosis_diagnoses_untold", "kernosis_trigger_diagnoses_total", "kernosis_trigger_withheld_total"); err != nil {
		t.Error(err)
	}
	if n, err := testutil.GatherAndCount(m.Registry, "kernosis_diagnosis_latency_seconds"); err != nil || n != 1 {
		t.Errorf("%d latencies (%v)", n, err)
	}
	// What "promtool check metrics" checks.
	if problems, err := testutil.GatherAndLint(m.Registry); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}
