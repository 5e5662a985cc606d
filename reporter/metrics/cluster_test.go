package metrics

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestCluster(t *testing.T) {
	m := New("test", "n1")
	c := m.Cluster(func() ClusterStats {
		return ClusterStats{
			Writes:     []APIWrites{{Object: "condition", Outcome: "written", Count: 3}, {Object: "event", Outcome: "created", Count: 2}},
			Conditions: &ConditionStats{Bytes: 700, Pending: true, Yielded: 1},
			Events: &EventStats{
				Rules:  map[string]EventRule{"oom-kill": {Happened: 9, Dropped: map[string]uint64{"burst": 2}, Untold: map[string]uint64{"pod": 1}}},
				Series: 4, Waiting: 1,
			},
			Diagnoses: &DiagnosisRequests{
				Requests: []APIRequests{{"list", "triggers", "kind_missing", 2}, {"patch", "diagnoses/status", "done", 7}},
				Watches:  map[string]uint64{"diagnoses": 3},
			},
			LastAcked: map[string]time.Time{"condition": time.Unix(1000, 5e8), "event": {}},
		}
	})
	c.Acknowledged("event", 3*time.Millisecond)
	err := testutil.GatherAndCompare(m.Registry, strings.NewReader(`
# HELP kernosis_api_last_acknowledged_timestamp_seconds When the API server last took a write, by object.
# TYPE kernosis_api_last_acknowledged_timestamp_seconds gauge
kernosis_api_last_acknowledged_timestamp_seconds{node="n1",object="condition"} 1000.5
# HELP kernosis_api_writes_total Requests that write to the API server, by object (condition, event, lease, diagnosis) and outcome.
# TYPE kernosis_api_writes_total counter
kernosis_api_writes_total{node="n1",object="condition",outcome="written"} 3
kernosis_api_writes_total{node="n1",object="event",outcome="created"} 2
# HELP kernosis_conditions_pending 1 while the API server does not have the conditions as they are.
# TYPE kernosis_conditions_pending gauge
kernosis_conditions_pending{node="n1"} 1
# HELP kernosis_diagnosis_api_requests_total Requests for Diagnoses and what they are made of, by verb, resource and outcome.
# TYPE kernosis_diagnosis_api_requests_total counter
kernosis_diagnosis_api_requests_total{node="n1",outcome="done",resource="diagnoses/status",verb="patch"} 7
kernosis_diagnosis_api_requests_total{node="n1",outcome="kind_missing",resource="triggers",verb="list"} 2
# HELP kernosis_diagnosis_api_watches_total Watches that the API server has opened, by resource. Each but the first follows one that has ended.
# TYPE kernosis_diagnosis_api_watches_total counter
kernosis_diagnosis_api_watches_total{node="n1",resource="diagnoses"} 3
# HELP kernosis_events_dropped_total Occurrences that no Event counts, by rule and reason.
# TYPE kernosis_events_dropped_total counter
kernosis_events_dropped_total{node="n1",reason="burst",rule="oom-kill"} 2
# HELP kernosis_events_not_on_pod_total Occurrences that the node's Event counts but none of the pod, by rule and reason.
# TYPE kernosis_events_not_on_pod_total counter
kernosis_events_not_on_pod_total{node="n1",reason="pod",rule="oom-kill"} 1
`), "kernosis_api_last_acknowledged_timestamp_seconds", "kernosis_api_writes_total", "kernosis_conditions_pending",
		"kernosis_diagnosis_api_requests_total", "kernosis_diagnosis_api_watches_total",
		"kernosis_events_dropped_total", "kernosis_events_not_on_pod_total")
	if err != nil {
		t.Error(err)
	}
	if n, err := testutil.GatherAndCount(m.Registry, "kernosis_report_latency_seconds"); err != nil || n != 1 {
		t.Errorf("%d latencies (%v)", n, err)
	}
	// What "promtool check metrics" checks.
	if problems, err := testutil.GatherAndLint(m.Registry); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}
