package fleet

import (
	"net/http"
	"strings"
	"sync"

	"k8s.io/client-go/rest"
)

// requests counts the agents' requests to the API server at the transport: retries by the client
// count separately.
type requests struct {
	mu   sync.Mutex
	sums spell
}

// spell holds the counts of one phase.
type spell struct {
	Busy      int            // responses with status 429
	Throttled map[string]int // the same, by verb and the last part of the path that is not a name
	Failures  int            // failures for other reasons
	Failed    []string
}

func (s *spell) add(o spell) {
	s.Busy, s.Failures = s.Busy+o.Busy, s.Failures+o.Failures
	s.Failed = append(s.Failed, o.Failed...)
	for what, n := range o.Throttled {
		s.throttle(what, n)
	}
}

func (s *spell) throttle(what string, n int) {
	if s.Throttled == nil {
		s.Throttled = map[string]int{}
	}
	s.Throttled[what] += n
}

// next returns the counts since the last call.
func (r *requests) next() spell {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := r.sums
	r.sums = spell{}
	return last
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
	answer, err := c.next.RoundTrip(request)
	c.to.note(request, answer, err)
	return answer, err
}

func (r *requests) note(request *http.Request, answer *http.Response, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, read, why := &r.sums, request.Method == http.MethodGet, ""
	switch {
	case err != nil && request.Context().Err() == nil: // a watch ends with its agent
		why = err.Error()
	case err != nil || answer.StatusCode < http.StatusBadRequest:
	case answer.StatusCode == http.StatusTooManyRequests:
		s.Busy++
		s.throttle(request.Method+" "+resourceOf(request.URL.Path)+" "+answer.Header.Get("Retry-After"), 1)
	case answer.StatusCode == http.StatusNotFound && read: // an agent first looks for its Lease, which may not exist yet
	case answer.StatusCode == http.StatusConflict && !read:
		// The controller, or this agent itself, has written it meanwhile: the response came too
		// late.
	default:
		why = answer.Status
	}
	if why != "" {
		s.Failures++
		if len(s.Failed) < maxReported {
			s.Failed = append(s.Failed, request.Method+" "+request.URL.Path+": "+why)
		}
	}
}

// resourceOf returns the resource in a path.
func resourceOf(path string) string {
	for _, name := range []string{"diagnoses", "operations", "operationsets", "triggers", "leases", "events", "pods", "nodes"} {
		if strings.Contains(path+"/", "/"+name+"/") {
			return name
		}
	}
	return path
}
