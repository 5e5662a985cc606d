package worker

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

func TestMetrics(t *testing.T) {
	w, err := New(Config{Node: "n7", Namespace: "kernosis", Dir: t.TempDir(), Store: struct{ Store }{}})
	if err != nil {
		t.Fatal(err)
	}
	w.counts.dropped["full"], w.counts.ended[v1alpha1.PhaseSucceeded], w.counts.taken = 5, 1, 4
	w.latency.Observe((2500 * time.Millisecond).Seconds())
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(w)
	if err := testutil.GatherAndCompare(r, strings.NewReader(`
# HELP kernosis_diagnoses_dropped_total Diagnoses that were not run or not made known, by reason.
# TYPE kernosis_diagnoses_dropped_total counter
kernosis_diagnoses_dropped_total{reason="full"} 5
# HELP kernosis_diagnoses_ended_total Diagnoses that have ended, by phase.
# TYPE kernosis_diagnoses_ended_total counter
kernosis_diagnoses_ended_total{phase="Succeeded"} 1
# HELP kernosis_diagnoses_taken_total Diagnoses that this node was to run, of its own triggers and others.
# TYPE kernosis_diagnoses_taken_total counter
kernosis_diagnoses_taken_total 4
# HELP kernosis_diagnoses_unreported Diagnoses that have ended, of which the API server does not know.
# TYPE kernosis_diagnoses_unreported gauge
kernosis_diagnoses_unreported 0
`), "kernosis_diagnoses_dropped_total", "kernosis_diagnoses_ended_total", "kernosis_diagnoses_taken_total", "kernosis_diagnoses_unreported"); err != nil {
		t.Error(err)
	}
	if n, err := testutil.GatherAndCount(r, "kernosis_diagnosis_latency_seconds"); err != nil || n != 1 {
		t.Errorf("%d latencies (%v)", n, err)
	}
	// What "promtool check metrics" checks.
	if problems, err := testutil.GatherAndLint(r); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}
