package web

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"
	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/vmtest/kubetest"
	"github.com/kernosis/kernosis/vmtest/netlab"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

var cluster kubetest.Shared

func TestMain(m *testing.M) {
	os.Exit(testenv.CheckLeaks(func() int {
		code := cluster.Run(m)
		http.DefaultClient.CloseIdleConnections()
		return code
	}))
}

// stand runs an agent's servers in a network namespace, and has another one with pods that can
// reach it.
type stand struct {
	t          *testing.T
	pods, node *netlab.Net
	counts     *Counts
	registry   *prometheus.Registry
	down       atomic.Bool  // the API server is down
	reviews    atomic.Int32 // number of reviews by the API server
	metrics    string       // addresses of the servers
	status     string
	own        string // address of /conditions on loopback
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func newStand(t *testing.T, n uint8) *stand {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes network namespaces")
	}
	s := &stand{t: t, counts: NewCounts(), registry: prometheus.NewRegistry()}
	s.registry.MustRegister(s.counts)
	s.pods, s.node = netlab.PairIn(t, n)
	to := cluster.Server(t).Admin()
	to.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			s.reviews.Add(1)
			if s.down.Load() {
				return nil, errors.New("the network is cut")
			}
			return next.RoundTrip(r)
		})
	})
	access := &AccessConfig{API: kubetest.Clientset(t, to), Counts: s.counts, Log: slog.New(slog.DiscardHandler)}
	fine := func() error { return nil }
	pages := map[string]http.Handler{"/{$}": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "the page") })}
	s.metrics = s.serve(access, fmt.Sprintf("10.97.%d.2:0", n), func(a *Access) http.Handler {
		return Handler(s.registry, fine, fine, func() []string { return []string{"degraded: log/kmsg"} }, pages, a)
	})
	status := func(a *Access) http.Handler {
		return StatusHandler(fine, func() []problem.Condition { return []problem.Condition{{Type: "KernelDeadlock"}} }, a)
	}
	s.status = s.serve(access, fmt.Sprintf("10.97.%d.2:0", n), status)
	s.own = s.serve(access, "127.0.0.1:0", status)
	return s
}

// serve serves in the node's namespace until the test ends.
func (s *stand) serve(to *AccessConfig, address string, h func(*Access) http.Handler) string {
	s.t.Helper()
	access, err := to.For(address)
	if err != nil {
		s.t.Fatal(err)
	}
	var l net.Listener
	s.node.In(func() error {
		l, err = (&net.ListenConfig{}).Listen(s.t.Context(), "tcp", address)
		return err
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, l, h(access), access, to.Counts) }()
	s.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.DeadlineExceeded) {
			s.t.Error(err)
		}
	})
	return access.Scheme() + "://" + l.Addr().String()
}

// client returns a client that connects from an address in a namespace.
func (s *stand) client(from *netlab.Net, address string) *http.Client {
	d := net.Dialer{Timeout: testenv.Within(10 * time.Second)}
	if address != "" {
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(address), 0))
	}
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // as Prometheus is configured to
		DialContext: func(ctx context.Context, network, to string) (c net.Conn, err error) {
			err = from.Do(func() error { c, err = d.DialContext(ctx, network, to); return err })
			return c, err
		},
	}
	s.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: testenv.Within(20 * time.Second)}
}

// get returns the status and the body of a response, or 0 and the error.
func (s *stand) get(c *http.Client, url, token string) (int, string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		s.t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := c.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, err.Error()
	}
	return answer.StatusCode, string(text)
}

// reader returns the token of a service account, with or without the right to read metrics.
func reader(t *testing.T, may bool) string {
	t.Helper()
	server := cluster.Server(t)
	ns := server.Namespace(t)
	var roles []rbacv1.ClusterRole
	if may {
		roles = []rbacv1.ClusterRole{{Rules: []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics", "/conditions"}, Verbs: []string{"get"}}}}}
	}
	server.ServiceAccount(t, ns, "reader", roles...)
	return server.Token(t, kubetest.TokenFor{Namespace: ns, ServiceAccount: "reader"})
}

// What other machines can reach is served only to clients with the right to read it according to
// the API server.
func TestWhoMayRead(t *testing.T) {
	s := newStand(t, 61)
	may, mayNot := reader(t, true), reader(t, false)
	pod, node := s.client(s.pods, ""), s.client(s.node, "")
	for _, c := range []struct {
		what       string
		client     *http.Client
		url, token string
		code       int
		says       string
	}{
		{"no token", pod, s.metrics + "/metrics", "", 401, "no bearer token"},
		{"garbage", pod, s.metrics + "/metrics", "garbage", 401, "not valid"},
		{"no right", pod, s.metrics + "/metrics", mayNot, 403, "may not get /metrics"},
		{"the right", pod, s.metrics + "/metrics", may, 200, "kernosis_http_requests_refused_total"},
		{"another path", pod, s.metrics + "/debug/pprof/", may, 404, ""},
		{"the page without a token", pod, s.metrics + "/", "", 401, "no bearer token"},
		{"the page without the right to /metrics", pod, s.metrics + "/", mayNot, 403, "may not get /metrics"},
		{"the page", pod, s.metrics + "/", may, 200, "the page"},
		{"the page from a browser", pod, strings.Replace(s.metrics, "://", "://anybody:"+may+"@", 1) + "/", "", 200, "the page"},
		{"the page from a browser without the right", pod, strings.Replace(s.metrics, "://", "://anybody:"+mayNot+"@", 1) + "/", "", 403, ""},
		{"metrics from a browser", pod, strings.Replace(s.metrics, "://", "://anybody:"+may+"@", 1) + "/metrics", "", 401, ""},
		{"kubelet's", node, s.metrics + "/healthz", "", 200, "ok\n"},
		{"kubelet's", node, s.metrics + "/readyz", "", 200, "ok\n"},
		{"conditions without a token", pod, s.status + "/conditions", "", 401, ""},
		{"conditions", pod, s.status + "/conditions", may, 200, "KernelDeadlock"},
		{"profiles", pod, s.status + "/debug/pprof/", may, 404, ""},
		{"profiles", pod, s.status + "/debug/pprof/heap", may, 404, ""},
		{"profiles on loopback", node, s.own + "/debug/pprof/cmdline", "", 200, ""},
		{"conditions on loopback", node, s.own + "/conditions", "", 200, "KernelDeadlock"},
	} {
		code, text := s.get(c.client, c.url, c.token)
		if code != c.code || !strings.Contains(text, c.says) {
			t.Errorf("%s %s: %d %q, want %d %q", c.what, c.url, code, text, c.code, c.says)
		}
		if strings.HasSuffix(c.url, "z") && strings.Contains(text, "degraded") {
			t.Errorf("%s reveals %q without a token", c.url, text)
		}
	}
	if code, _ := s.get(pod, s.own+"/debug/pprof/", ""); code != 0 {
		t.Errorf("the node's loopback answers a pod: %d", code)
	}
	if code, _ := s.get(pod, strings.Replace(s.metrics, "https", "http", 1)+"/metrics", may); code == 200 {
		t.Error("metrics are served without TLS")
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.metrics+"/healthz", strings.NewReader("a body"))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := pod.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("a body is answered with %s", answer.Status)
	}
}

// While the API server is down, clients that were allowed stay allowed, and no others.
func TestTheAPIServerIsDown(t *testing.T) {
	s := newStand(t, 62)
	may, other := reader(t, true), reader(t, true)
	c := s.client(s.pods, "")
	if code, text := s.get(c, s.metrics+"/metrics", may); code != 200 {
		t.Fatalf("%d %s", code, text)
	}
	asked := s.reviews.Load()
	if code, _ := s.get(c, s.metrics+"/metrics", may); code != 200 || s.reviews.Load() != asked {
		t.Errorf("%d; %d questions for a second scrape", code, s.reviews.Load()-asked)
	}
	s.down.Store(true)
	access, err := (&AccessConfig{Log: slog.New(slog.DiscardHandler)}).For("10.0.0.1:1")
	if access != nil || err == nil || !strings.Contains(err.Error(), "metrics-plain-http") {
		t.Errorf("without an API server: %v", err)
	}
	if code, _ := s.get(c, s.metrics+"/metrics", other); code != 503 {
		t.Errorf("another is answered with %d", code)
	}
}

// A client whose token was revoked can't keep its access by flooding from the same address, which
// stops reviews of unknown tokens.
func TestATokenThatWasTakenBack(t *testing.T) {
	server := cluster.Server(t)
	api := server.Client()
	tokens := NewTokens(TokensConfig{API: api, Verb: "get", Allowed: time.Nanosecond, Kept: time.Hour, Rate: 1, Log: slog.New(slog.DiscardHandler)})
	const path, address = "/metrics", "10.0.0.1"
	token := reader(t, true)
	if v, _ := tokens.Verdict(t.Context(), token, path, address); v.Outcome != OutcomeAllowed {
		t.Fatalf("%+v", v)
	}
	n := 0
	flood := func() { // until one is rejected
		for last := ""; last != OutcomeLimited; n++ {
			v, _ := tokens.Verdict(t.Context(), fmt.Sprint("garbage", n), path, address)
			last = v.Outcome
		}
	}
	flood()
	if v, _ := tokens.Verdict(t.Context(), token, path, address); v.Outcome != OutcomeAllowed {
		t.Fatalf("good, in a flood: %+v", v)
	}
	review, err := api.AuthenticationV1().TokenReviews().Create(t.Context(), &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	namespace := strings.Split(review.Status.User.Username, ":")[2] // system:serviceaccount:NAMESPACE:reader
	if err := api.CoreV1().ServiceAccounts(namespace).Delete(t.Context(), "reader", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	testenv.UntilShown(t, "the token no longer counts", time.Minute, func() (bool, string) {
		flood()
		v, _ := tokens.Verdict(t.Context(), token, path, address)
		return v.Outcome == OutcomeUnknown, v.Outcome
	})
}

// flood opens connections from an address and keeps those that the server does not close. It uses
// raw sockets, which don't count as the agent's memory. It returns how many were established.
func (s *stand) flood(from netip.Addr, n int) (connected int) {
	s.t.Helper()
	at := netip.MustParseAddrPort(strings.TrimPrefix(s.metrics, "https://"))
	var held []unix.PollFd
	s.t.Cleanup(func() { closeAll(held) })
	s.pods.In(func() error {
		for range n {
			if len(held)%500 == 499 {
				held = closeEnded(held)
			}
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return fmt.Errorf("with %d connections that the server holds: %w", len(held), err)
			}
			held = append(held, unix.PollFd{Fd: int32(fd), Events: unix.POLLRDHUP})
			if err := unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1); err != nil {
				return err
			}
			if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: from.As4()}); err != nil {
				return err
			}
			// Shorter than the kernel's retransmission timeout, as the queue may be full.
			if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &unix.Timeval{Usec: 300_000}); err != nil {
				return err
			}
			if unix.Connect(fd, &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}) == nil {
				connected++
			}
		}
		return nil
	})
	return connected
}

// closeEnded closes the sockets whose peer has closed, and returns the others.
func closeEnded(all []unix.PollFd) (open []unix.PollFd) {
	if _, err := unix.Poll(all, 0); err != nil {
		return all
	}
	for _, p := range all {
		if p.Revents == 0 {
			open = append(open, p)
			continue
		}
		_ = unix.Close(int(p.Fd))
	}
	return open
}

func closeAll(all []unix.PollFd) {
	for _, p := range all {
		_ = unix.Close(int(p.Fd))
	}
}

func memory() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}

// A client that opens ten thousand connections and sends nothing uses little of the agent's memory,
// and does not keep others from reading.
func TestIdleConnections(t *testing.T) {
	s := newStand(t, 63)
	for i := 3; i < 8; i++ {
		s.pods.AddAddress(fmt.Sprintf("10.97.63.%d/24", i))
	}
	token := reader(t, true)
	beside := s.client(s.pods, "10.97.63.3") // from the attacker's address
	if code, text := s.get(beside, s.metrics+"/metrics", token); code != 200 {
		t.Fatalf("%d %s", code, text)
	}
	before := memory()
	began, connected := time.Now(), 0
	for i := 3; i < 7; i++ {
		connected += s.flood(netip.AddrFrom4([4]byte{10, 97, 63, byte(i)}), 2500)
	}
	grown := int64(memory()) - int64(before)
	t.Logf("%d of 10000 connected in %s; memory grew by %d KiB", connected, time.Since(began).Round(time.Millisecond), grown/1024)
	if connected < 9000 {
		t.Errorf("only %d connected: that is no flood", connected)
	}
	if grown > 16<<20 {
		t.Errorf("memory grew by %d MiB", grown>>20)
	}
	start := time.Now()
	if code, text := s.get(beside, s.metrics+"/metrics", token); code != 200 {
		t.Errorf("a known client at the attacking address: %d %s", code, text)
	}
	if code, text := s.get(s.client(s.pods, "10.97.63.7"), s.metrics+"/metrics", token); code != 200 {
		t.Errorf("a new client: %d %s", code, text)
	}
	if code, text := s.get(s.client(s.node, ""), s.metrics+"/healthz", ""); code != 200 {
		t.Errorf("kubelet: %d %s", code, text)
	}
	if took := time.Since(start); took > testenv.Within(2*time.Second) {
		t.Errorf("three answers took %s", took)
	}
	for _, reason := range []string{ClosedRate, ClosedFull} {
		if n := kubetest.Sum(t, s.registry, "kernosis_http_connections_closed_total", "reason", reason); n == 0 {
			t.Errorf("no connection is counted as closed for %s", reason)
		}
	}
}
