package kube

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
	"github.com/kernosis/kernosis/reporter/kube/conditions"
)

// Request is a kind of request, and how it ended.
type Request struct {
	Verb, Resource string // as RBAC has them
	Outcome        conditions.Outcome
}

// Writes reports whether it changes something.
func (q Request) Writes() bool { return q.Verb == verbCreate || q.Verb == verbPatch }

// Stats are counted since the Store was made.
type Stats struct {
	Requests map[Request]uint64
	// Watches are those that the API server has opened, by resource. Of each the first is
	// that of the start, the others follow one that has ended.
	Watches map[string]uint64
	Unsaved uint64 // times that what is known could not be kept on the disk
	Away    bool   // the API server did not answer the last request
	// LastAcked is when the last write was taken; zero: none was.
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

// account counts requests, and reports a trouble when it begins and when it is over.
type account struct {
	log *slog.Logger
	// settle is for how long after it was away an API server is not believed that a right
	// is missing: one that has just started does not know its roles yet.
	settle time.Duration
	// served is closed when the API server has answered for the kinds.
	served chan struct{}
	once   sync.Once

	mu      sync.Mutex
	kept    Stats
	since   time.Time          // nothing was answered from then on; zero: it was
	doubt   time.Time          // when it was seen to be away last, or the Store was made
	missing map[string]bool    // resources that are not defined
	denied  map[[2]string]bool // verb and resource
	garbled map[string]bool    // resources whose answer can't be read
}

func newAccount(log *slog.Logger, settle time.Duration) *account {
	return &account{
		log: log, settle: settle, doubt: time.Now(), served: make(chan struct{}), kept: Stats{Requests: make(map[Request]uint64), Watches: make(map[string]uint64)},
		missing: make(map[string]bool), denied: make(map[[2]string]bool), garbled: make(map[string]bool),
	}
}

func (a *account) notSaved() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.kept.Unsaved++
}

// answered takes how a request has ended. One that our own end has cut counts for nothing.
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
	// client-go reports a watch that was cut before it began as of one that was opened,
	// so that only the others say that the server is there.
	if outcome != Done || verb != verbWatch {
		a.reach(outcome, err)
	}
	a.defined(resource, outcome)
	a.permit(verb, resource, outcome, err)
	a.read(resource, outcome, err)
}

// heard takes that a watch or a list has brought something.
func (a *account) heard() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reach(Done, nil)
}

// final reports whether an outcome is not to be tried again.
func (a *account) final(o conditions.Outcome) bool {
	if o == conditions.Forbidden {
		a.mu.Lock()
		defer a.mu.Unlock()
		return time.Since(a.doubt) >= a.settle
	}
	return !isAway(o) && o != conditions.Conflict // of a Create it is one about a ResourceQuota
}

// reach reports whether anybody answers.
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
	a.kept.Away = away
}

// defined reports whether the kinds are known there. It is one trouble for all of them.
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

// permit reports each right that is missing.
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

// read reports answers that are not of the kind's form: definitions of another version.
func (a *account) read(resource string, outcome conditions.Outcome, err error) {
	switch {
	case outcome == Unreadable && !a.garbled[resource]:
		a.garbled[resource] = true
		a.log.Warn("can't read objects; the last known ones stay in force", "resource", resource, "api_group", v1alpha1.Group, "error", err)
	case outcome == Done && a.garbled[resource]:
		delete(a.garbled, resource)
	}
}
