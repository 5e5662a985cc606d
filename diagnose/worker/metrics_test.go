package worker

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/diagnose/artifact"
)

func TestMetrics(t *testing.T) {
	w, err := New(Config{Node: "n7", Namespace: "kernosis", Dir: t.TempDir(), Store: struct{ Store }{}})
	if err != nil {
		t.Fatal(err)
	}
	w.stats.Dropped["full"], w.stats.Ended[v1alpha1.PhaseSucceeded], w.stats.Taken = 5, 1, 4
	w.latency.Observe((2500 * time.Millisecond).Seconds())
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(w)
	if err := testutil.GatherAndCompare(r, strings.NewReader(`
# HELP kernosis_diagnoses_dropped_total Diagnoses that were not run or not reported, by reason.
# TYPE kernosis_diagnoses_dropped_total counter
kernosis_diagnoses_dropped_total{reason="full"} 5
# HELP kernosis_diagnoses_ended_total Diagnoses that have ended, by phase.
# TYPE kernosis_diagnoses_ended_total counter
kernosis_diagnoses_ended_total{phase="Cancelled"} 0
kernosis_diagnoses_ended_total{phase="Failed"} 0
kernosis_diagnoses_ended_total{phase="Succeeded"} 1
kernosis_diagnoses_ended_total{phase="Unknown"} 0
# HELP kernosis_diagnoses_taken_total Diagnoses that this node accepted, from its own triggers and others.
# TYPE kernosis_diagnoses_taken_total counter
kernosis_diagnoses_taken_total 4
# HELP kernosis_diagnosis_writes_total Writes of a Diagnosis' status, by outcome (taken, away, gone, failed).
# TYPE kernosis_diagnosis_writes_total counter
kernosis_diagnosis_writes_total{outcome="away"} 0
kernosis_diagnosis_writes_total{outcome="failed"} 0
kernosis_diagnosis_writes_total{outcome="gone"} 0
kernosis_diagnosis_writes_total{outcome="taken"} 0
# HELP kernosis_diagnoses_unreported Completed Diagnoses not yet written to the API server.
# TYPE kernosis_diagnoses_unreported gauge
kernosis_diagnoses_unreported 0
`), "kernosis_diagnoses_dropped_total", "kernosis_diagnoses_ended_total", "kernosis_diagnoses_taken_total", "kernosis_diagnoses_unreported", "kernosis_diagnosis_writes_total"); err != nil {
		t.Error(err)
	}
	if n, err := testutil.GatherAndCount(r, "kernosis_diagnosis_latency_seconds"); err != nil || n != 1 {
		t.Errorf("%d latencies (%v)", n, err)
	}
	// The same checks as "promtool check metrics".
	if problems, err := testutil.GatherAndLint(r); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

// Every kind of loss in diagnoses has a metric, whatever counts it.
func TestMetricsOfWhatIsLost(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(dir, takenDir), 0o700), os.WriteFile(filepath.Join(filepath.Join(dir, takenDir), "x.json"), []byte("{"), 0o600)); err != nil {
		t.Fatal(err)
	}
	w, err := New(Config{Node: "n7", Namespace: "kernosis", Dir: dir, Store: struct{ Store }{}, Artifacts: artifact.Config{Budget: 10}})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.begin(); err != nil {
		t.Fatal(err)
	}
	defer w.artifacts.Close()
	run, err := w.artifacts.Begin("d")
	if err != nil {
		t.Fatal(err)
	}
	node, err := run.Of(1, "")
	if err != nil {
		t.Fatal(err)
	}
	f, err := node.Create("a")
	if err != nil {
		t.Fatal(err)
	}
	if n, err := f.Write(make([]byte, 11)); n != 10 {
		t.Fatal(n, err)
	}
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(w)
	if err := testutil.GatherAndCompare(r, strings.NewReader(`
# HELP kernosis_artifact_bytes Size of the artifacts on the disk.
# TYPE kernosis_artifact_bytes gauge
kernosis_artifact_bytes 10
# HELP kernosis_artifacts_lost_total Artifacts that are lost or incomplete, by reason (evicted, truncated, refused, discarded, partial).
# TYPE kernosis_artifacts_lost_total counter
kernosis_artifacts_lost_total{reason="discarded"} 0
kernosis_artifacts_lost_total{reason="evicted"} 0
kernosis_artifacts_lost_total{reason="partial"} 0
kernosis_artifacts_lost_total{reason="refused"} 0
kernosis_artifacts_lost_total{reason="truncated"} 1
# HELP kernosis_diagnosis_damaged_total Saved entries and checkpoints of Diagnoses that could not be read.
# TYPE kernosis_diagnosis_damaged_total counter
kernosis_diagnosis_damaged_total{file="checkpoint"} 0
kernosis_diagnosis_damaged_total{file="taken"} 1
`), "kernosis_artifact_bytes", "kernosis_artifacts_lost_total", "kernosis_diagnosis_damaged_total"); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.GatherAndLint(r); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}
