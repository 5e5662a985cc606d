package alerts

import (
	"crypto/x509"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/reporter/web"
)

// Ways in which senders authenticate.
const (
	byCertificate = "certificate"
	byToken       = "token"
	byNothing     = "none"
)

// authenticate returns who has sent a request, or the answer that rejects it.
func (s *Server) authenticate(r *http.Request, path string) (who string, refused *answer) {
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

func (s *Server) byToken(r *http.Request, token, path string) (who string, refused *answer) {
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
func (s *Server) unknown(r *http.Request, path, why string) {
	s.report.unknown.Do(func() {
		s.cfg.Log.Warn("alerts: sender rejected", "address", web.Address(r), "path", path, "reason", why)
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
	return namesOf(r.TLS.PeerCertificates[0])
}

func namesOf(c *x509.Certificate) []string {
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
