package status

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/reporter/web"
)

const (
	// askWithin is how long this machine's agent may take to answer.
	askWithin = 3 * time.Second
	// maxAnswer bounds an answer, in bytes: an agent has some thousand metrics.
	maxAnswer = 16 << 20
	// maxWord bounds the length of a text that is shown.
	maxWord = 512
)

// healthy is the answer of /healthz if the agent works.
const healthy = "ok"

// Endpoint is the HTTP endpoint of an agent's /healthz, /readyz and /metrics.
type Endpoint struct {
	base   *url.URL
	token  string
	client *http.Client
}

// NewEndpoint returns the endpoint at a URL, or at an address host:port. Without a scheme, it uses
// http for a loopback address and https for others, as the agent serves. The token may be empty. The
// agent's certificate is self-signed by default and can't be verified, so the token is only sent to
// addresses of this machine.
func NewEndpoint(address, token string) (*Endpoint, error) {
	base, err := parseEndpoint(address)
	if err != nil {
		return nil, err
	}
	if token != "" {
		if err := ofThisMachine(base.Hostname()); err != nil {
			return nil, fmt.Errorf("%s: %w; the token is sent to this machine only", address, err)
		}
	}
	return &Endpoint{base: base, token: token, client: &http.Client{
		Timeout: askWithin,
		// An agent never redirects, and the token must not be sent elsewhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // it proves nothing, see web.AccessConfig
		},
	}}, nil
}

// ofThisMachine returns an error unless a host is an address of this machine.
func ofThisMachine(host string) error {
	if web.Loopback(host) {
		return nil
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		return fmt.Errorf("read the addresses of this machine: %w", err)
	}
	ip := net.ParseIP(host)
	if ip == nil || !slices.ContainsFunc(all, func(a net.Addr) bool {
		n, ok := a.(*net.IPNet)
		return ok && n.IP.Equal(ip)
	}) {
		return errors.New("not an address of this machine")
	}
	return nil
}

func parseEndpoint(address string) (*url.URL, error) {
	text := address
	if !strings.Contains(text, "://") {
		host, _, err := net.SplitHostPort(text)
		if err != nil {
			return nil, fmt.Errorf("%q: want HOST:PORT or a URL, for example 127.0.0.1:20257", address)
		}
		scheme := "https://"
		if web.Loopback(host) {
			scheme = "http://"
		}
		text = scheme + text
	}
	u, err := url.Parse(text)
	if err == nil {
		_, err = strconv.ParseUint(cmp.Or(u.Port(), "0"), 10, 16)
	}
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.Path != "" && u.Path != "/" || strings.ContainsAny(text, "?#") {
		return nil, fmt.Errorf("%q: want HOST:PORT or a URL, for example 127.0.0.1:20257", address)
	}
	return &url.URL{Scheme: u.Scheme, Host: u.Host}, nil
}

func (e *Endpoint) String() string { return e.base.String() }

// Get returns the code and text of a page.
func (e *Endpoint) Get(ctx context.Context, page string) (code int, text []byte, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, e.base.JoinPath(page).String(), http.NoBody)
	if err != nil {
		return 0, nil, err
	}
	if e.token != "" {
		request.Header.Set("Authorization", "Bearer "+e.token)
	}
	answer, err := e.client.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer answer.Body.Close()
	text, err = io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	return answer.StatusCode, text, err
}

func (e *Endpoint) health(ctx context.Context) (string, error) {
	code, body, err := e.Get(ctx, "/healthz")
	if err != nil {
		return "", err
	}
	text := display.Safe(strings.TrimSpace(string(body)), maxWord)
	switch {
	case code == http.StatusOK && text == healthy:
		return healthy, nil
	case code == http.StatusServiceUnavailable && text != "":
		return text, nil
	}
	return "", fmt.Errorf("/healthz answers %d: not an agent", code)
}

func (e *Endpoint) degraded(ctx context.Context) ([]string, error) {
	out := []string{}
	code, body, err := e.Get(ctx, "/readyz")
	if err != nil || code != http.StatusOK {
		return out, err // the text of /healthz says what is wrong
	}
	for line := range strings.Lines(string(body)) {
		if line = strings.TrimSpace(line); line != "" && line != healthy {
			out = append(out, display.Safe(strings.TrimPrefix(line, "degraded: "), maxWord))
		}
	}
	return out, nil
}

type families map[string]*dto.MetricFamily

func (e *Endpoint) metrics(ctx context.Context) (families, error) {
	code, body, err := e.Get(ctx, "/metrics")
	switch {
	case err != nil:
		return nil, err
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		return nil, fmt.Errorf("/metrics answers %d: %s (--token-file)", code, display.Safe(strings.TrimSpace(string(body)), maxWord))
	case code != http.StatusOK:
		return nil, fmt.Errorf("/metrics answers %d", code)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	all, err := parser.TextToMetricFamilies(bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("/metrics: %w", err)
	}
	return all, nil
}

// each calls f for each series of a metric with its value. The metric is a counter, a gauge or
// untyped.
func (m families) each(name string, f func(label func(string) string, value float64)) {
	for _, metric := range m[name].GetMetric() {
		label := func(name string) string {
			for _, l := range metric.GetLabel() {
				if l.GetName() == name {
					return display.Safe(l.GetValue(), maxWord)
				}
			}
			return ""
		}
		f(label, metric.GetCounter().GetValue()+metric.GetGauge().GetValue()+metric.GetUntyped().GetValue())
	}
}

// value returns the sum of the series of a metric, or 0 if it is missing.
func (m families) value(name string) (sum float64) {
	m.each(name, func(_ func(string) string, v float64) { sum += v })
	return sum
}
