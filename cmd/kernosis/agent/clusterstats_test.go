package agent

import (
	"context"
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
	"github.com/kernosis/kernosis/reporter/kube/events"
	"github.com/kernosis/kernosis/vmtest/await"
	"github.com/kernosis/kernosis/vmtest/kubetest"
)

// If the API server forbids Events, the requests are counted as forbidden: KernosisAPIForbidden fires.
func TestForbiddenEventsAreCounted(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }))
	defer server.Close()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	j, err := journal.Open(filepath.Join(dir, JournalDir), journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	sink, err := events.New(events.Config{
		Node: "n7", Client: client, Pods: &podSource{}, Dir: dir, JournalDir: filepath.Join(dir, JournalDir), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- sink.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	now := time.Now()
	e := journal.Entry{Now: now, Event: &event.Event{}, Transitions: []problem.Transition{{Problem: &problem.Problem{
		Rule: "r", Reason: "R", Message: "m", Severity: problem.Warning, State: problem.Firing, FirstSeen: now, LastSeen: now, Count: 1,
	}}}}
	if e.Seq, err = j.Append(e); err != nil {
		t.Fatal(err)
	}
	sink.Add(e)
	sink.Flush(e.Seq)
	r := &clusterReporter{events: sink}
	metrics := kubetest.Registered(t, r)
	await.Until(t, "the refusal is counted", time.Minute, func() bool {
		return kubetest.Sum(t, metrics, "kernosis_api_writes_total", "object", objectEvent, "outcome", "forbidden") > 0
	})
}
