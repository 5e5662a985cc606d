package start

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/reporter/web"
)

// Ways in which senders authenticate.
const (
	byCertificate = "certificate"
	byToken       = "token"
	byNothing     = "none"
)

// authenticate returns the sender of a request, or the answer that rejects it.
func (s *server) authenticate(r *http.Request, path string) (who string, refused *answer) {
	names := certificateNames(r)
	for _, n := range names {
		if slices.Contains(s.cfg.ClientNames, n) {
			s.counts.authenticated(byCertificate, web.OutcomeAllowed)
			return "certificate " + n, nil
		}
	}
	token, given := web.Bearer(r)
	if given {
		return s.byToken(r, token, path)
	}
	if len(names) > 0 {
		s.counts.authenticated(byCertificate, web.OutcomeForbidden)
		why := fmt.Sprintf("certificate of %s: none of its names is in alerts-client-names", display.Safe(strings.Join(names, ", "), 256))
		s.unknown(r, path, why)
		return "", refuse(http.StatusForbidden, why)
	}
	s.counts.authenticated(byNothing, web.OutcomeUnknown)
	const why = "no bearer token"
	s.unknown(r, path, why)
	return "", unauthorized(why)
}

func (s *server) byToken(r *http.Request, token, path string) (who string, refused *answer) {
	v, after := s.tokens.Verdict(r.Context(), token, path, web.Address(r))
	s.counts.authenticated(byToken, v.Outcome)
	switch v.Outcome {
	case web.OutcomeAllowed:
		return "user " + v.User, nil
	case web.OutcomeLimited:
		return "", later(http.StatusTooManyRequests, "too many unknown tokens", after)
	case web.OutcomeUnavailable:
		return "", later(http.StatusServiceUnavailable, "can't verify the token with the API server", after)
	case web.OutcomeForbidden:
		s.unknown(r, path, v.Why)
		return "", refuse(http.StatusForbidden, v.Why)
	}
	s.unknown(r, path, v.Why)
	return "", unauthorized(v.Why)
}

// unknown logs a rejected sender.
func (s *server) unknown(r *http.Request, path, why string) {
	s.report.unknown.Do(func() {
		s.log.Warn("alerts: sender rejected", "address", web.Address(r), "path", path, "reason", why)
	})
}

func unauthorized(why string) *answer {
	a := refuse(http.StatusUnauthorized, why)
	a.headers = map[string]string{"WWW-Authenticate": `Bearer realm="kernosis"`}
	return a
}

// certificateNames returns the names in a verified client certificate.
func certificateNames(r *http.Request) []string {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 || len(r.TLS.PeerCertificates) == 0 {
		return nil
	}
	c := r.TLS.PeerCertificates[0]
	var names []string
	if c.Subject.CommonName != "" {
		names = append(names, c.Subject.CommonName)
	}
	names = append(names, c.DNSNames...)
	for _, u := range c.URIs {
		names = append(names, u.String())
	}
	return names
}

// Limits of what senders may use of this process.
const (
	// maxRequests is how many requests may run at once. Each holds a body of up to 4 MiB, and
	// several times that while it is decoded.
	maxRequests = 8
	// A sender has few groups of alerts. Prometheus sends 64 alerts per request, so 4096 alerts
	// make 64 requests.
	requestRate, requestBurst = 20, 100
	// reviewRate bounds the token reviews per second.
	reviewRate = 50
	// allowedFor is how long a positive review of a token is cached.
	allowedFor = time.Minute
	// maxSenders is how many senders are remembered; the least recently seen are evicted.
	maxSenders = 256

	// turnWithin is how long a request may wait for its turn.
	turnWithin = 2 * time.Second
	// takeWithin is how long a decoded request may take: Prometheus waits 10 s for all of it.
	takeWithin = 7 * time.Second

	headerWithin, readWithin, writeWithin, idleWithin = 5 * time.Second, 20 * time.Second, 60 * time.Second, 2 * time.Minute

	maxHeader = 64 << 10
)

// turn waits for a limiter, but not longer than turnWithin. It returns 0 if the request may
// continue, or else after what time to retry.
func turn(ctx context.Context, l *rate.Limiter) time.Duration {
	r := l.Reserve()
	d := r.Delay()
	if d > turnWithin {
		r.Cancel()
		return d
	}
	if d > 0 {
		select {
		case <-time.After(d):
		case <-ctx.Done():
			return d
		}
	}
	return 0
}
