package probe_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kernosis/kernosis/collector/probe"
)

const results = "kernosis_probe_results_total"

// counted returns the sum of all series with this result.
func counted(t *testing.T, m *probe.Manager, result string) float64 {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(m)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, f := range families {
		if f.GetName() != results {
			continue
		}
		for _, s := range f.GetMetric() {
			for _, l := range s.GetLabel() {
				if l.GetName() == "result" && l.GetValue() == result {
					sum += s.GetCounter().GetValue()
				}
			}
		}
	}
	return sum
}

func observed(uid, name string) *probe.Pod {
	spec := &probe.Spec{Handler: probe.TCP, Port: 80, SuccessThreshold: 1, FailureThreshold: 3, Period: time.Second}
	return &probe.Pod{UID: uid, Namespace: "shop", Name: name, Containers: []probe.Container{
		{Name: "web", ID: "x://" + uid, State: probe.Running, Started: true, Liveness: spec},
	}}
}

func TestSeriesLiveAsLongAsTheirWorker(t *testing.T) {
	m := probe.New(probe.Config{})
	m.AddPod(observed("u1", "web-0"))
	m.AddPod(observed("u2", "web-0")) // another pod of the same name: they share the series
	for i := range 5 {
		for _, uid := range []string{"u1", "u2"} {
			m.Observe(probe.Key{PodUID: uid, Container: "web", Kind: probe.Liveness}, probe.Outcome{OK: i < 3})
		}
	}
	m.Observe(probe.Key{PodUID: "u3"}, probe.Outcome{})
	want := func(ok, failed int) string {
		return fmt.Sprintf(`# HELP kernosis_probe_results_total Probes of a container, by result; unknown: the probe could not be run, or kubelet may not have counted its failure. Removed when the probe is no longer run.
# TYPE kernosis_probe_results_total counter
kernosis_probe_results_total{container="web",feed="observed",namespace="shop",pod="web-0",probe_type="liveness",result="failed"} %d
kernosis_probe_results_total{container="web",feed="observed",namespace="shop",pod="web-0",probe_type="liveness",result="successful"} %d
`, failed, ok)
	}
	if err := testutil.CollectAndCompare(m, strings.NewReader(want(6, 4)), results); err != nil {
		t.Error(err)
	}
	m.RemovePod("u1")
	if err := testutil.CollectAndCompare(m, strings.NewReader(want(3, 2)), results); err != nil {
		t.Error(err)
	}
	m.ReplacePods(nil)
	if n := testutil.CollectAndCount(m, results); n != 0 {
		t.Errorf("%d series of no worker", n)
	}
	if err := testutil.CollectAndCompare(m, strings.NewReader(`# HELP kernosis_probe_outcomes_ignored_total Probes that were observed but not counted: no such probe exists, or it was not due.
# TYPE kernosis_probe_outcomes_ignored_total counter
kernosis_probe_outcomes_ignored_total 1
`), "kernosis_probe_outcomes_ignored_total"); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.CollectAndLint(m); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

// Workers without series are counted too, and get series when there is room.
func TestSeriesAreBounded(t *testing.T) {
	m := probe.New(probe.Config{})
	for i := range 1100 {
		m.AddPod(observed(fmt.Sprint("u", i), fmt.Sprint("web-", i)))
	}
	m.AddPod(observed("one-more", "one-more"))
	if n := testutil.CollectAndCount(m, results); n != 2000 {
		t.Errorf("%d series, want 2 of each of 1000", n)
	}
	for i := range 1100 {
		m.Observe(probe.Key{PodUID: fmt.Sprint("u", i), Container: "web", Kind: probe.Liveness}, probe.Outcome{OK: true})
	}
	if n := counted(t, m, "successful"); n != 1000 {
		t.Errorf("%v counted by series", n)
	}
	for name, want := range map[string]string{
		"kernosis_probe_results_overflowed_total": `# HELP kernosis_probe_results_overflowed_total Probes that have no series of their own, because there are too many.
# TYPE kernosis_probe_results_overflowed_total counter
kernosis_probe_results_overflowed_total{result="failed"} 0
kernosis_probe_results_overflowed_total{result="successful"} 100
kernosis_probe_results_overflowed_total{result="unknown"} 0
`,
		"kernosis_probe_pods_refused_total": `# HELP kernosis_probe_pods_refused_total Times that a pod was ignored because there are too many.
# TYPE kernosis_probe_pods_refused_total counter
kernosis_probe_pods_refused_total 1
`,
	} {
		if err := testutil.CollectAndCompare(m, strings.NewReader(want), name); err != nil {
			t.Error(err)
		}
	}
	m.RemovePod("u0")
	m.AddPod(observed("one-more", "one-more"))
	if n := testutil.CollectAndCount(m, results); n != 2000 {
		t.Errorf("%d series after one came for one that went", n)
	}
}

func TestUpdates(t *testing.T) {
	m := probe.New(probe.Config{})
	r := m.Results(probe.Liveness)
	r.Set("before", probe.Failure) // Updates was not called yet
	updates := r.Updates()
	if r.Set("before", probe.Failure) || !r.Set("before", probe.Success) {
		t.Error("a change is none, or the other way round")
	}
	r.Remove("before")
	if u := <-updates; u != (probe.Update{ContainerID: "before", Result: probe.Success}) || len(updates) != 0 {
		t.Errorf("%+v, and %d more", u, len(updates))
	}
	for i := range 300 {
		r.Set(strconv.Itoa(i), probe.Failure)
	}
	if len(updates) != 256 || r.Dropped() != 44 {
		t.Errorf("%d updates, %d dropped", len(updates), r.Dropped())
	}
	if got, ok := r.Get("299"); !ok || got != probe.Failure {
		t.Error("what was never reported is not there either")
	}
	// A worker's results are sent in the same way.
	ready := m.Results(probe.Readiness).Updates()
	p := observed("u1", "web-0")
	p.Containers[0].Readiness, p.Containers[0].Liveness = p.Containers[0].Liveness, nil
	m.AddPod(p)
	m.Observe(probe.Key{PodUID: "u1", Container: "web", Kind: probe.Readiness}, probe.Outcome{OK: true})
	m.RemovePod("u1")
	for _, want := range []probe.Result{probe.Failure, probe.Success} {
		if u := <-ready; u != (probe.Update{ContainerID: "x://u1", Result: want}) {
			t.Errorf("%+v", u)
		}
	}
}
