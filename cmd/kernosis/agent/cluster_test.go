package agent

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/reporter/journal"
	"github.com/kernosis/kernosis/reporter/kube/conditions"
)

// The latency of a condition counts from the first change that the API server did not have, although
// it changes again while it is being written.
func TestReportLatencyOfAConditionThatChangesAgain(t *testing.T) {
	began := time.Unix(1e9, 0)
	at := func(seconds int) time.Time { return began.Add(time.Duration(seconds) * time.Second) }
	is := func(status problem.Status, message string) problem.Condition {
		return problem.Condition{Type: "Deadlock", Status: status, Reason: "R", Message: message, LastTransition: began}
	}
	healthy, first, more := is(problem.False, "fine"), is(problem.True, "a hangs"), is(problem.True, "a hangs (and 1 more)")
	type step struct {
		at    int
		event bool // a kernel event changes it; otherwise time does
		to    problem.Condition
		acked bool // the API server has it
	}
	for name, c := range map[string]struct {
		steps []step
		want  []float64 // seconds
	}{
		"one change":                       {[]step{{0, true, first, false}, {3, false, first, true}}, []float64{3}},
		"two changes, one write":           {[]step{{0, true, first, false}, {1, true, more, false}, {3, false, more, true}}, []float64{3}},
		"changed again while written":      {[]step{{0, true, first, false}, {8, true, more, false}, {10, false, first, true}, {11, false, more, true}}, []float64{10, 3}},
		"ended while written":              {[]step{{0, true, first, false}, {8, false, healthy, false}, {10, false, first, true}, {11, false, healthy, true}}, []float64{10}},
		"another state was written":        {[]step{{0, true, first, false}, {2, false, healthy, true}, {5, false, first, true}}, []float64{5}},
		"it ended before it was written":   {[]step{{0, false, healthy, true}, {1, true, first, false}, {2, false, healthy, false}, {99, true, first, false}, {100, false, first, true}}, []float64{1}},
		"it changed back before the write": {[]step{{0, true, first, true}, {1, true, more, false}, {2, true, first, false}, {99, true, more, false}, {100, false, more, true}}, []float64{1}},
	} {
		t.Run(name, func(t *testing.T) {
			r := &clusterReporter{latency: newLatency(), changes: map[string]*unwritten{}}
			var err error
			if r.conditions, err = conditions.New(conditions.Config{Client: kubernetes.NewForConfigOrDie(&rest.Config{Host: "none.invalid"}), Node: "n1"}); err != nil {
				t.Fatal(err)
			}
			for _, s := range c.steps {
				if s.acked {
					r.conditionsAcked(conditions.Ack{At: at(s.at), Written: []problem.Condition{s.to}})
					continue
				}
				e := journal.Entry{Now: at(s.at), Transitions: []problem.Transition{{Condition: &s.to}}}
				if s.event {
					e.Event = &event.Event{Time: at(s.at)}
				}
				r.add(e)
			}
			n, sum := observed(t, r.latency)
			want := 0.0
			for _, seconds := range c.want {
				want += seconds
			}
			if n != len(c.want) || sum != want {
				t.Errorf("%d latencies of %v s in total, want %v", n, sum, c.want)
			}
		})
	}
}

// A condition that changes all the time while the API server is unavailable takes bounded memory.
func TestUnwrittenChangesAreBounded(t *testing.T) {
	u := &unwritten{}
	for i := range 1000 {
		u.add(problem.Condition{Status: problem.True, Message: time.Duration(i).String()}, time.Unix(int64(i+1), 0))
	}
	if n := len(u.list); n != maxUnwritten {
		t.Errorf("%d changes", n)
	}
	if since := u.ack(problem.Condition{Status: problem.True, Message: time.Duration(999).String()}); !since.Equal(time.Unix(1, 0)) || len(u.list) != 0 {
		t.Errorf("since %s, %d left", since, len(u.list))
	}
}

// observed returns the number and the sum of the latencies of conditions.
func observed(t *testing.T, h *prometheus.HistogramVec) (int, float64) {
	t.Helper()
	var m dto.Metric
	if err := h.WithLabelValues(objectCondition).(prometheus.Histogram).Write(&m); err != nil {
		t.Fatal(err)
	}
	return int(m.GetHistogram().GetSampleCount()), m.GetHistogram().GetSampleSum()
}
