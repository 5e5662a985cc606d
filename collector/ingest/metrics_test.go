package ingest

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestMetrics(t *testing.T) {
	in, err := New(Config{Sources: []Source{{Name: "gpu-monitor"}}})
	if err != nil {
		t.Fatal(err)
	}
	reports := in.counts.reports
	reports.WithLabelValues("", string(Forbidden)).Add(2)
	reports.WithLabelValues("gpu-monitor", string(Accepted)).Add(7)
	reports.WithLabelValues("gpu-monitor", string(RateLimit)).Add(1)
	for i, v := range []*prometheus.CounterVec{in.counts.warnings, in.counts.expired, in.counts.changes, in.counts.events} {
		v.WithLabelValues("gpu-monitor").Add(float64(i + 2))
	}
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(in.Metrics())
	if err := testutil.GatherAndCompare(r, strings.NewReader(`
# HELP kernosis_report_condition_changes_total Conditions in accepted reports whose status or reason had changed.
# TYPE kernosis_report_condition_changes_total counter
kernosis_report_condition_changes_total{source="gpu-monitor"} 4
# HELP kernosis_report_conditions_expired_total Conditions that became Unknown because they were not reported again in time.
# TYPE kernosis_report_conditions_expired_total counter
kernosis_report_conditions_expired_total{source="gpu-monitor"} 3
# HELP kernosis_report_events_total Events in accepted reports, including those that were sent twice and count once.
# TYPE kernosis_report_events_total counter
kernosis_report_events_total{source="gpu-monitor"} 5
# HELP kernosis_report_fields_changed_total Fields of accepted reports that were cut or escaped.
# TYPE kernosis_report_fields_changed_total counter
kernosis_report_fields_changed_total{source="gpu-monitor"} 2
# HELP kernosis_reports_total Reports of problem daemons, by outcome (accepted, or refused: invalid, forbidden, conflict, too-large, rate, unavailable); source is empty if it is not configured or the user may not report for it.
# TYPE kernosis_reports_total counter
kernosis_reports_total{outcome="accepted",source=""} 0
kernosis_reports_total{outcome="conflict",source=""} 0
kernosis_reports_total{outcome="forbidden",source=""} 2
kernosis_reports_total{outcome="invalid",source=""} 0
kernosis_reports_total{outcome="rate",source=""} 0
kernosis_reports_total{outcome="too-large",source=""} 0
kernosis_reports_total{outcome="unavailable",source=""} 0
kernosis_reports_total{outcome="accepted",source="gpu-monitor"} 7
kernosis_reports_total{outcome="conflict",source="gpu-monitor"} 0
kernosis_reports_total{outcome="forbidden",source="gpu-monitor"} 0
kernosis_reports_total{outcome="invalid",source="gpu-monitor"} 0
kernosis_reports_total{outcome="rate",source="gpu-monitor"} 1
kernosis_reports_total{outcome="too-large",source="gpu-monitor"} 0
kernosis_reports_total{outcome="unavailable",source="gpu-monitor"} 0
`)); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.GatherAndLint(r); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

// counted checks a counter.
func counted(t *testing.T, counts *prometheus.CounterVec, want float64, labels ...string) {
	t.Helper()
	if got := testutil.ToFloat64(counts.WithLabelValues(labels...)); got != want {
		t.Errorf("%v of %q, want %v", got, labels, want)
	}
}
