package agent

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/reporter/journal"
	"github.com/kernosis/kernosis/reporter/kube/conditions"
	"github.com/kernosis/kernosis/reporter/kube/events"
	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// reporting returns a sink for Events that reports to a server, and a function that reports an
// occurrence of a problem because of an event.
func reporting(t *testing.T, answers http.HandlerFunc) (*events.Sink, func(*event.Event)) {
	t.Helper()
	server := httptest.NewServer(answers)
	t.Cleanup(server.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	j, err := journal.Open(filepath.Join(dir, JournalDir), journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	sink, err := events.New(events.Config{
		Node: "n7", Client: client, Pods: &podSource{}, Dir: dir, JournalDir: filepath.Join(dir, JournalDir), Log: slog.New(slog.DiscardHandler),
		PatchEvery: 10 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- sink.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return sink, func(ev *event.Event) {
		t.Helper()
		now := time.Now()
		e := journal.Entry{Now: now, Event: ev, Transitions: []problem.Transition{{Problem: &problem.Problem{
			Rule: "r", Reason: "R", Message: "m", Severity: problem.Warning, State: problem.Firing, FirstSeen: now, LastSeen: now, Count: 1,
		}}}}
		e.Seq, _, err = j.Add(e)
		if err = errors.Join(err, j.Flush()); err != nil {
			t.Fatal(err)
		}
		sink.Add(e)
		sink.Flush(e.Seq)
	}
}

// If the API server forbids Events, the requests are counted as forbidden: KernosisAPIForbidden fires.
func TestForbiddenEventsAreCounted(t *testing.T) {
	sink, occurs := reporting(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
	occurs(&event.Event{})
	metrics := kubetest.Registered(t, &clusterReporter{events: sink})
	testenv.Until(t, "the refusal is counted", time.Minute, func() bool {
		return kubetest.Sum(t, metrics, "kernosis_api_writes_total", "object", objectEvent, "outcome", "forbidden") > 0
	})
	if at := kubetest.Sum(t, metrics, "kernosis_api_last_acknowledged_timestamp_seconds", "object", objectEvent); at != 0 {
		t.Errorf("accepted at %v, want never", at)
	}
}

// Each accepted write counts as acknowledged, also a patch and one of a problem without a kernel
// event.
func TestLastAcknowledgedEvent(t *testing.T) {
	sink, occurs := reporting(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodPost {
			w.WriteHeader(http.StatusCreated)
		}
		_, _ = w.Write([]byte(`{"kind":"Event","apiVersion":"v1"}`))
	})
	metrics := kubetest.Registered(t, &clusterReporter{events: sink})
	latest := 0.0
	for _, write := range []conditions.Outcome{events.Created, events.Patched} {
		occurs(nil)
		testenv.Until(t, "the Event is "+string(write), time.Minute, func() bool { return sink.Stats().Requests[write] > 0 })
		at := kubetest.Sum(t, metrics, "kernosis_api_last_acknowledged_timestamp_seconds", "object", objectEvent)
		if at <= latest {
			t.Errorf("%s: last acknowledged at %f, before at %f", write, at, latest)
		}
		latest = at
	}
}
