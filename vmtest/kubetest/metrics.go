package kubetest

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/kernosis/kernosis/vmtest/testenv"
)

// Metrics are the metrics of one program, by name.
type Metrics map[string]*dto.MetricFamily

// Sum returns the sum of a metric over all its series that have the given labels, which are pairs
// of name and value. For a histogram it sums the numbers of observations. A missing metric counts
// as zero, like a counter before its first increment.
func (m Metrics) Sum(name string, labels ...string) float64 {
	var sum float64
	for _, metric := range m[name].GetMetric() {
		if !has(metric, labels) {
			continue
		}
		sum += metric.GetCounter().GetValue() + metric.GetGauge().GetValue() + metric.GetUntyped().GetValue() +
			float64(metric.GetHistogram().GetSampleCount())
	}
	return sum
}

// Sum is [Metrics.Sum] for a metric of this process.
func Sum(tb testing.TB, from prometheus.Gatherer, name string, labels ...string) (sum float64) {
	tb.Helper()
	families, err := from.Gather()
	if err != nil {
		tb.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			sum += Metrics{name: f}.Sum(name, labels...)
		}
	}
	return sum
}

// AwaitSum waits until [Sum] is want: the effect of an operation may be visible before its counter
// is incremented. It fails the test if the sum exceeds want, or at the timeout.
func AwaitSum(tb testing.TB, from prometheus.Gatherer, want float64, name string, labels ...string) {
	tb.Helper()
	got := Sum(tb, from, name, labels...)
	for until := time.Now().Add(testenv.Within(sumWithin)); got < want && time.Now().Before(until); got = Sum(tb, from, name, labels...) {
		time.Sleep(10 * time.Millisecond) // polling interval
	}
	if got != want {
		tb.Errorf("%s%q is %v, want %v", name, labels, got, want)
	}
}

// sumWithin is how long a counter may lag.
const sumWithin = 10 * time.Second

func has(metric *dto.Metric, labels []string) bool {
	for of := range slices.Chunk(labels, 2) {
		if !slices.ContainsFunc(metric.GetLabel(), func(l *dto.LabelPair) bool { return l.GetName() == of[0] && l.GetValue() == of[1] }) {
			return false
		}
	}
	return true
}

// APIMetrics returns the API server's metrics, such as apiserver_request_total.
func (s *Server) APIMetrics(tb testing.TB) Metrics {
	tb.Helper()
	text, err := s.client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	return ParseMetrics(tb, text)
}

// ParseMetrics parses a program's response at /metrics.
func ParseMetrics(tb testing.TB, text []byte) Metrics {
	tb.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		tb.Fatal(fmt.Errorf("metrics: %w", err))
	}
	return families
}

// Registered returns a registry with collectors. It fails the test if promtool would complain about
// their metrics.
func Registered(tb testing.TB, all ...prometheus.Collector) *prometheus.Registry {
	tb.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(all...)
	if problems, err := testutil.GatherAndLint(r); err != nil || len(problems) > 0 {
		tb.Errorf("metrics: %v, %v", problems, err)
	}
	return r
}
