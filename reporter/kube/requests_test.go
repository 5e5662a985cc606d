package kube_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// What the fleet writes.
const (
	kindCondition = "condition"
	kindEvent     = "event"
	kindLease     = "lease"
)

// requests counts what a fleet asks of the API server, where it goes out: what a
// client tries again by itself counts twice.
type requests struct {
	mu     sync.Mutex
	writes map[string][]time.Time // when each began, by kind; without those answered with 429
	reads  int                    // watches too
	busy   int                    // answers that were 429
	failed []string               // for another reason
}

// through makes a client's requests count.
func (r *requests) through(c *rest.Config) {
	c.Wrap(func(next http.RoundTripper) http.RoundTripper { return counted{next, r} })
}

type counted struct {
	next http.RoundTripper
	to   *requests
}

// RoundTrip implements http.RoundTripper.
func (c counted) RoundTrip(request *http.Request) (*http.Response, error) {
	began := time.Now()
	answer, err := c.next.RoundTrip(request)
	c.to.note(request, began, answer, err)
	return answer, err
}

func (r *requests) note(request *http.Request, began time.Time, answer *http.Response, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if answer != nil && answer.StatusCode == http.StatusTooManyRequests {
		r.busy++
		return
	}
	what := request.Method + " " + request.URL.Path
	switch {
	case request.Method == http.MethodGet:
		r.reads++
	case strings.HasSuffix(what, "/status"):
		r.writes[kindCondition] = append(r.writes[kindCondition], began)
	case strings.Contains(what, "/events"):
		r.writes[kindEvent] = append(r.writes[kindEvent], began)
	case strings.Contains(what, "/leases"):
		r.writes[kindLease] = append(r.writes[kindLease], began)
	default:
		r.failed = append(r.failed, "unforeseen "+what)
	}
	switch {
	case err != nil:
		if request.Context().Err() == nil { // a watch ends with its agent
			r.failed = append(r.failed, what+": "+err.Error())
		}
	case answer.StatusCode >= http.StatusBadRequest:
		// A Lease that is not there yet is looked for first.
		if request.Method != http.MethodGet || answer.StatusCode != http.StatusNotFound {
			r.failed = append(r.failed, what+": "+answer.Status)
		}
	}
}

// writesUntil returns when each write before a time began, in order, by kind.
func (r *requests) writesUntil(end time.Time) map[string][]time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[string][]time.Time{}
	for kind, all := range r.writes {
		out[kind] = slices.DeleteFunc(slices.SortedFunc(slices.Values(all), time.Time.Compare), func(at time.Time) bool { return !at.Before(end) })
	}
	return out
}

// failures returns the requests that failed so far, and how many were answered with
// 429.
func (r *requests) failures() (failed []string, busy int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.failed), r.busy
}

// spell is what was written in a time.
type spell struct {
	lasted time.Duration
	writes map[string]int
	peak   map[string]int // in any second
	reads  int            // until its end
}

func (r *requests) readsSoFar() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.reads
}

func (r *requests) between(from, to time.Time) spell {
	s := spell{lasted: to.Sub(from), writes: map[string]int{}, peak: map[string]int{}, reads: r.readsSoFar()}
	for kind, all := range r.writesUntil(to) {
		within := slices.DeleteFunc(all, func(at time.Time) bool { return at.Before(from) })
		s.writes[kind] = len(within)
		first := 0
		for i, at := range within {
			for at.Sub(within[first]) >= time.Second {
				first++
			}
			s.peak[kind] = max(s.peak[kind], i-first+1)
		}
	}
	return s
}

func (s spell) String() string {
	var parts []string
	for _, kind := range []string{kindCondition, kindEvent, kindLease} {
		parts = append(parts, fmt.Sprintf("%ss %d (%.1f/s, at most %d in a second)", kind, s.writes[kind], float64(s.writes[kind])/s.lasted.Seconds(), s.peak[kind]))
	}
	return fmt.Sprintf("%.1f s: %s", s.lasted.Seconds(), strings.Join(parts, ", "))
}
