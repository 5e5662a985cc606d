package alerts

import (
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/kernosis/kernosis/collector/event"
)

// How senders show who they are.
const (
	byCertificate = "certificate"
	byToken       = "token"
	byNothing     = "none"
)

// What becomes of that.
const (
	outcomeAllowed     = "allowed"
	outcomeUnknown     = "unknown"     // 401
	outcomeForbidden   = "forbidden"   // 403
	outcomeLimited     = "limited"     // 429: too many that nobody knows
	outcomeUnavailable = "unavailable" // 503: the API server could not be asked
)

// authenticate returns who has sent a request, or the answer for one who may not.
func (s *Server) authenticate(r *http.Request, path string) (who string, refused *answer) {
	names := certificateNames(r)
	for _, n := range names {
		if slices.Contains(s.cfg.ClientNames, n) {
			s.counts.authenticated(byCertificate, outcomeAllowed)
			return "certificate " + n, nil
		}
	}
	token, given := bearer(r)
	if given {
		return s.byToken(r, token, path)
	}
	if len(names) > 0 {
		s.counts.authenticated(byCertificate, outcomeForbidden)
		why := fmt.Sprintf("certificate of %s: is none of the names that may send alerts", event.SafeText(strings.Join(names, ", "), 256))
		s.unknown(r, path, why)
		return "", refuse(http.StatusForbidden, why)
	}
	s.counts.authenticated(byNothing, outcomeUnknown)
	const why = "no bearer token"
	s.unknown(r, path, why)
	return "", unauthorized(why)
}

func (s *Server) byToken(r *http.Request, token, path string) (who string, refused *answer) {
	v, after := s.tokens.verdict(r.Context(), token, path, address(r))
	s.counts.authenticated(byToken, v.outcome)
	switch v.outcome {
	case outcomeAllowed:
		return "user " + v.user, nil
	case outcomeLimited:
		return "", later(http.StatusTooManyRequests, "too many tokens that are not known", after)
	case outcomeUnavailable:
		return "", later(http.StatusServiceUnavailable, "the API server can't be asked whose token it is", after)
	case outcomeForbidden:
		s.unknown(r, path, v.why)
		return "", refuse(http.StatusForbidden, v.why)
	}
	s.unknown(r, path, v.why)
	return "", unauthorized(v.why)
}

// unknown tells of a sender that was turned away.
func (s *Server) unknown(r *http.Request, path, why string) {
	s.tell.unknown.Do(func() {
		s.cfg.Log.Warn("alerts: a sender is turned away", "address", address(r), "path", path, "reason", why)
	})
}

func unauthorized(why string) *answer {
	a := refuse(http.StatusUnauthorized, why)
	a.headers = map[string]string{"WWW-Authenticate": `Bearer realm="kernosis"`}
	return a
}

// certificateNames returns what a certificate that was verified calls its owner.
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

// bearer returns the token that a request shows.
func bearer(r *http.Request) (token string, given bool) {
	scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return "", false
	}
	token = strings.TrimSpace(token)
	return token, token != "" && len(token) <= maxToken
}

// address returns the host that a request comes from.
func address(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

// retrySoon is when to try again what the API server could not be asked for.
const retrySoon = 5 * time.Second
