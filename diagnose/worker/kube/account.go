package kube

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/reporter/kube/conditions"
)

// Request is a kind of request with its outcome.
type Request struct {
	Verb, Resource string // as in RBAC
	Outcome        conditions.Outcome
}

// Writes reports whether the request changes something.
func (q Request) Writes() bool { return q.Verb == verbCreate || q.Verb == verbPatch }

// Stats are the counters since the Store was created.
type Stats struct {
	Requests map[Request]uint64
	// Watches are the watches that the API server has opened, by resource. The first of each is
	// from the start; the others replace one that has ended.
	Watches map[string]uint64
	// LastAcked is when the last write was accepted; zero: never.
	LastAcked time.Time
}

// Stats returns the counters.
func (s *Store) Stats() Stats {
	s.account.mu.Lock()
	defer s.account.mu.Unlock()
	st := s.account.kept
	st.Requests, st.Watches = maps.Clone(st.Requests), maps.Clone(st.Watches)
	return st
}

// account counts requests, and logs when a problem begins and ends.
type account struct {
	log *slog.Logger
	// settle is how long after an outage a Forbidden of the API server is not trusted: one that has
	// just started has not loaded its roles yet.
	settle time.Duration
	// served is closed once it is known that the API server serves the kinds.
	served chan struct{}
	once   sync.Once

	mu      sync.Mutex
	kept    Stats
	since   time.Time          // since when there was no answer; zero: it answers
	doubt   time.Time          // when it was last unreachable, or the Store was created
	missing map[string]bool    // resources whose CRD is missing
	denied  map[[2]string]bool // verb and resource
	garbled map[string]bool    // resources whose responses can't be decoded
}

func newAccount(log *slog.Logger, settle time.Duration) *account {
	return &account{
		log: log, settle: settle, doubt: time.Now(), served: make(chan struct{}), kept: Stats{Requests: make(map[Request]uint64), Watches: make(map[string]uint64)},
		missing: make(map[string]bool), denied: make(map[[2]string]bool), garbled: make(map[string]bool),
	}
}

// answered records the outcome of a request. Requests cancelled by our own shutdown are ignored.
func (a *account) answered(ctx context.Context, verb, resource string, err error) {
	if err != nil && errors.Is(ctx.Err(), context.Canceled) {
		return
	}
	outcome := outcomeOf(err)
	if err != nil {
		err = &requestError{err: err} // bounded
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.kept.Requests[Request{verb, resource, outcome}]++
	switch {
	case outcome != Done:
	case verb == verbWatch:
		a.kept.Watches[resource]++
	case verb == verbCreate, verb == verbPatch:
		a.kept.LastAcked = time.Now()
	}
	// client-go reports a watch that was cut before it began like one that was opened. So a
	// successful watch does not prove that the server is reachable; all other outcomes count.
	if outcome != Done || verb != verbWatch {
		a.reach(outcome, err)
	}
	a.defined(resource, outcome)
	a.permit(verb, resource, outcome, err)
	a.read(resource, outcome, err)
}

// heard records that a watch or a list has delivered something.
func (a *account) heard() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reach(Done, nil)
}

// final reports whether a request with this outcome must not be retried.
func (a *account) final(o conditions.Outcome) bool {
	if o == conditions.Forbidden {
		a.mu.Lock()
		defer a.mu.Unlock()
		return time.Since(a.doubt) >= a.settle
	}
	return !isAway(o) && o != conditions.Conflict // a Create gets a Conflict from a ResourceQuota
}

// reach logs and records whether the API server is reachable.
func (a *account) reach(outcome conditions.Outcome, err error) {
	away := isAway(outcome) && outcome != KindMissing && outcome != TooOld
	if away {
		a.doubt = time.Now()
	}
	switch {
	case away && a.since.IsZero():
		a.since = time.Now()
		a.log.Warn("API server is unreachable; diagnoses continue with the last known objects", "outcome", string(outcome), "error", err)
	case !away && !a.since.IsZero():
		a.log.Info("API server is reachable again", "away_for", time.Since(a.since).Round(time.Millisecond).String())
		a.since = time.Time{}
	}
}

// defined logs whether the CRDs are installed, once for all of them.
func (a *account) defined(resource string, outcome conditions.Outcome) {
	if outcome == Done || outcome == conditions.Forbidden {
		a.once.Do(func() { close(a.served) })
	}
	switch {
	case outcome == KindMissing:
		if len(a.missing) == 0 {
			a.log.Warn("the CRDs of kernosis.io are not installed; no diagnoses run for the cluster",
				"resource", resource, "remedy", "kubectl apply -f diagnose/api/crds")
		}
		a.missing[resource] = true
	case outcome == Done && a.missing[resource]:
		delete(a.missing, resource)
		if len(a.missing) == 0 {
			a.log.Info("the CRDs of kernosis.io are installed now", "group", v1alpha1.Group)
		}
	}
}

// permit logs each missing right.
func (a *account) permit(verb, resource string, outcome conditions.Outcome, err error) {
	right := [2]string{verb, resource}
	switch {
	case outcome == conditions.Forbidden && !a.denied[right] && time.Since(a.doubt) >= a.settle:
		a.denied[right] = true
		a.log.Warn("permission is missing", "verb", verb, "resource", resource, "api_group", v1alpha1.Group, "error", err)
	case outcome == Done && a.denied[right]:
		delete(a.denied, right)
		a.log.Info("permission was granted", "verb", verb, "resource", resource, "api_group", v1alpha1.Group)
	}
}

// read logs responses that can't be decoded: the CRDs are of another version.
func (a *account) read(resource string, outcome conditions.Outcome, err error) {
	switch {
	case outcome == Unreadable && !a.garbled[resource]:
		a.garbled[resource] = true
		a.log.Warn("can't read objects; the last known ones stay in force", "resource", resource, "api_group", v1alpha1.Group, "error", err)
	case outcome == Done && a.garbled[resource]:
		delete(a.garbled, resource)
	}
}

func requestsDesc() *prometheus.Desc {
	return prometheus.NewDesc("kernosis_diagnosis_api_requests_total", "API requests for Diagnoses and the objects they use, by verb, resource and outcome.",
		[]string{"verb", "resource", "outcome"}, nil)
}

func watchesDesc() *prometheus.Desc {
	return prometheus.NewDesc("kernosis_diagnosis_api_watches_total", "Watches opened at the API server, by resource. Each but the first replaces one that ended.",
		[]string{"resource"}, nil)
}

// Describe implements prometheus.Collector.
func (s *Store) Describe(ch chan<- *prometheus.Desc) {
	ch <- requestsDesc()
	ch <- watchesDesc()
}

// Collect implements prometheus.Collector.
func (s *Store) Collect(ch chan<- prometheus.Metric) {
	st := s.Stats()
	for q, n := range st.Requests {
		ch <- prometheus.MustNewConstMetric(requestsDesc(), prometheus.CounterValue, float64(n), q.Verb, q.Resource, string(q.Outcome))
	}
	for resource, n := range st.Watches {
		ch <- prometheus.MustNewConstMetric(watchesDesc(), prometheus.CounterValue, float64(n), resource)
	}
}
