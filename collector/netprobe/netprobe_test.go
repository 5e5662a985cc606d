package netprobe

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	pb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/kernosis/kernosis/vmtest/testenv"
	"github.com/kernosis/kernosis/vmtest/testserver"
)

func TestMain(m *testing.M) { os.Exit(testenv.CheckLeaks(m.Run)) }

// plenty is longer than any probe of these tests takes.
const plenty = 20 * time.Second

func listen(t *testing.T) (net.Listener, netip.AddrPort) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l, netip.MustParseAddrPort(l.Addr().String())
}

// serve handles one connection after the other with fn.
func serve(t *testing.T, fn func(net.Conn)) netip.AddrPort {
	t.Helper()
	l, at := listen(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			fn(c)
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return at
}

func serveHTTP(t *testing.T, secure bool, fn http.HandlerFunc) netip.AddrPort {
	t.Helper()
	l, at := listen(t)
	testserver.HTTP(t, l, secure, fn)
	return at
}

func TestHTTP(t *testing.T) {
	var seen atomic.Pointer[http.Request]
	handler := func(w http.ResponseWriter, r *http.Request) {
		seen.Store(r.Clone(context.WithoutCancel(r.Context())))
		switch r.URL.Path {
		case "/broken":
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, strings.Repeat("etcd failed ", 100))
		case "/elsewhere":
			http.Redirect(w, r, "http://127.0.0.9:9/secret", http.StatusFound)
		case "/here":
			http.Redirect(w, r, "/ok", http.StatusFound)
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusFound)
		default:
			_, _ = io.WriteString(w, strings.Repeat("x", 100_000))
		}
	}
	at, tlsAt := serveHTTP(t, false, handler), serveHTTP(t, true, handler)
	for name, c := range map[string]struct {
		p     Probe
		phase string
		want  string // of the error
	}{
		"ok":                 {Probe{Protocol: HTTP, To: at, Path: "/"}, PhaseDone, ""},
		"a redirect":         {Probe{Protocol: HTTP, To: at, Path: "/here"}, PhaseDone, ""},
		"a redirect by name": {Probe{Protocol: HTTP, To: at, Path: "/here", Name: "app.example"}, PhaseDone, ""},
		"elsewhere":          {Probe{Protocol: HTTP, To: at, Path: "/elsewhere"}, PhaseDone, ""},
		"in circles":         {Probe{Protocol: HTTP, To: at, Path: "/loop"}, PhaseAnswer, "stopped after 10 redirects"},
		"broken":             {Probe{Protocol: HTTP, To: at, Path: "/broken"}, PhaseAnswer, "status 503 Service Unavailable"},
		"https":              {Probe{Protocol: HTTPS, To: tlsAt, Path: "/"}, PhaseDone, ""},
		"https to http":      {Probe{Protocol: HTTPS, To: at, Path: "/"}, PhaseTLS, "HTTP response to HTTPS client"},
		"http to https":      {Probe{Protocol: HTTP, To: tlsAt, Path: "/"}, PhaseAnswer, "status 400"},
	} {
		r := c.p.RunWithin(t.Context(), plenty)
		if r.Phase != c.phase || c.want == "" && r.Err != nil || c.want != "" && (r.Err == nil || !strings.Contains(r.Err.Error(), c.want)) {
			t.Errorf("%s: %s, %v", name, r.Phase, r.Err)
		}
		if !r.Conn.Local.IsValid() || r.Conn.Remote != c.p.To || r.Connect <= 0 || r.Took < r.Connect || r.Conn.RTT <= 0 || r.Conn.Sent == 0 || r.Conn.Received == 0 {
			t.Errorf("%s: %+v", name, r)
		}
		if secure := c.p.To == tlsAt && c.phase == PhaseDone; secure != (r.TLS > 0) || c.phase == PhaseDone && r.FirstByte <= 0 {
			t.Errorf("%s: TLS %s, first byte %s", name, r.TLS, r.FirstByte)
		}
	}
	p := Probe{Protocol: HTTP, To: at, Path: "/broken"}
	r := p.RunWithin(t.Context(), plenty)
	if status, ok := errors.AsType[*StatusError](r.Err); !ok || status.Status != r.Status || !strings.HasPrefix(r.Body, "etcd failed") || len(r.Body) > maxSaid {
		t.Errorf("%+v", r)
	}
	p.Path = "/elsewhere"
	if r = p.RunWithin(t.Context(), plenty); r.Redirect != "http://127.0.0.9:9/secret" {
		t.Errorf("%+v", r)
	}

	// The headers are kubelet's, unless the probe has them.
	p = Probe{Protocol: HTTP, To: at, Path: "/ok?a=b", Headers: http.Header{"Host": {"web.example"}, "x-a": {"1", "2"}, "Accept": {""}}}
	if r = p.RunWithin(t.Context(), plenty); r.Err != nil {
		t.Fatal(r.Err)
	}
	got := seen.Load()
	if got.Host != "web.example" || strings.Join(got.Header["X-A"], ",") != "1,2" || got.Header.Values("Accept") != nil ||
		!strings.HasPrefix(got.UserAgent(), "kube-probe/") || got.URL.RawQuery != "a=b" || got.Header.Get("Accept-Encoding") != "" || !got.Close {
		t.Errorf("%s %+v", got.Host, got.Header)
	}
	p.Headers = http.Header{"User-Agent": {"mine"}}
	p.RunWithin(t.Context(), plenty)
	if got = seen.Load(); got.UserAgent() != "mine" || got.Header.Get("Accept") != "*/*" || got.Host != at.String() {
		t.Errorf("%s %+v", got.Host, got.Header)
	}
}

func TestTCPAndItsConnection(t *testing.T) {
	_, at := listen(t)
	guarded := errors.New("not this one")
	var reported []netip.AddrPort
	p := Probe{Protocol: TCP, To: at, Connected: func(to, local netip.AddrPort) error { reported = append(reported, to, local); return nil }}
	r := p.RunWithin(t.Context(), plenty)
	if r.Err != nil || r.Phase != PhaseDone || len(reported) != 2 || reported[0] != at || reported[1] != r.Conn.Local || r.Conn.Sent != 0 {
		t.Errorf("%+v, reported %v", r, reported)
	}
	p.Connected = func(_, _ netip.AddrPort) error { return guarded }
	for _, protocol := range []string{TCP, HTTP, GRPC} {
		p.Protocol, p.Path = protocol, "/"
		if r := p.RunWithin(t.Context(), plenty); !errors.Is(r.Err, guarded) || r.Conn.Sent != 0 {
			t.Errorf("%s: %+v", protocol, r)
		}
	}
	// The namespace in which it is made.
	p = Probe{Protocol: TCP, To: at, From: func(func() error) error { return guarded }}
	if r := p.RunWithin(t.Context(), plenty); !errors.Is(r.Err, guarded) || r.Phase != PhaseConnect || r.Conn.Local.IsValid() {
		t.Errorf("%+v", r)
	}
	// The connection lingers, like kubelet's.
	p = Probe{Protocol: TCP, To: at}
	c, err := p.dial(&Progress{ctx: t.Context()}, at.Port())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	lingers := 0
	err = c.(*conn).raw.Control(func(fd uintptr) { lingers, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_LINGER) })
	if err != nil || lingers != 1 {
		t.Errorf("%d, %v", lingers, err)
	}
}

func TestRefused(t *testing.T) {
	l, at := listen(t)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for _, protocol := range []string{TCP, HTTP, HTTPS, GRPC} {
		p := Probe{Protocol: protocol, To: at, Path: "/"}
		r := p.RunWithin(t.Context(), plenty)
		if !errors.Is(r.Err, unix.ECONNREFUSED) || r.Phase != PhaseConnect || r.Conn.Remote.IsValid() || r.Connect != 0 {
			t.Errorf("%s: %+v", protocol, r)
		}
	}
}

// A server that accepts the request and never answers: the kernel's connection state shows it.
func TestSilence(t *testing.T) {
	for _, protocol := range []string{HTTP, HTTPS, GRPC} {
		at := serve(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
		p := Probe{Protocol: protocol, To: at, Path: "/"}
		r := p.RunWithin(t.Context(), 300*time.Millisecond)
		late, ok := errors.AsType[*TimeoutError](r.Err)
		if !ok || late.After != 300*time.Millisecond || r.Conn.Received != 0 || r.Conn.Sent == 0 || r.Conn.Acked != r.Conn.Sent || r.FirstByte != 0 {
			t.Errorf("%s: %+v", protocol, r)
		}
		if want := map[string]string{HTTP: PhaseAnswer, HTTPS: PhaseTLS, GRPC: PhaseAnswer}[protocol]; r.Phase != want {
			t.Errorf("%s: %s", protocol, r.Phase)
		}
	}
}

// A server that answers only when the probe gives up has not answered it.
func TestAnswerBehindTheEnd(t *testing.T) {
	at := serveHTTP(t, true, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	p := Probe{Protocol: HTTPS, To: at, Headers: http.Header{"Connection": {"close"}}, TLS: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}}}
	for range 50 {
		r := p.RunWithin(t.Context(), 10*time.Millisecond)
		if _, late := errors.AsType[*TimeoutError](r.Err); !late || r.Status != "" || r.FirstByte != 0 {
			t.Fatalf("%+v", r)
		}
	}
}

func TestResetAndEnd(t *testing.T) {
	reset := serve(t, func(c net.Conn) {
		_, _ = c.Read(make([]byte, 1))
		_ = c.(*net.TCPConn).SetLinger(0)
	})
	end := serve(t, func(c net.Conn) {
		_, _ = c.Read(make([]byte, 1))
		_ = c.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, c) // a close with unread data would reset the connection
	})
	for _, protocol := range []string{HTTP, HTTPS, GRPC} {
		p := Probe{Protocol: protocol, To: reset, Path: "/"}
		if r := p.RunWithin(t.Context(), plenty); !errors.Is(r.Conn.Err, unix.ECONNRESET) || r.Err == nil {
			t.Errorf("%s: %+v", protocol, r)
		}
		p.To = end
		if r := p.RunWithin(t.Context(), plenty); !errors.Is(r.Conn.Err, io.EOF) || r.Err == nil {
			t.Errorf("%s: %+v", protocol, r)
		}
	}
}

// The end of the caller's context is not a timeout of the probe.
func TestCallersEnd(t *testing.T) {
	at := serve(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	ctx, cancel := context.WithCancel(t.Context())
	p := Probe{Protocol: HTTP, To: at, Path: "/", Connected: func(_, _ netip.AddrPort) error { cancel(); return nil }}
	r := p.RunWithin(ctx, plenty)
	if _, late := errors.AsType[*TimeoutError](r.Err); late || !errors.Is(r.Err, context.Canceled) {
		t.Errorf("%+v", r)
	}
}

func TestGRPC(t *testing.T) {
	l, at := listen(t)
	h := testserver.Health(t, l)
	h.SetServingStatus("down", pb.HealthCheckResponse_NOT_SERVING)
	plain, plainAt := listen(t)
	testserver.GRPC(t, plain, func(*grpc.Server) {})

	for name, c := range map[string]struct {
		at             netip.AddrPort
		service        string
		status, phase  string
		want           string
		wantFirst, err bool
	}{
		"serving":   {at, "", "SERVING", PhaseDone, "", true, false},
		"down":      {at, "down", "NOT_SERVING", PhaseAnswer, "status NOT_SERVING", true, true},
		"unknown":   {at, "none", "NotFound", PhaseAnswer, "unknown service", false, true},
		"no health": {plainAt, "", "", PhaseAnswer, "does not implement the gRPC health protocol", false, true},
	} {
		p := Probe{Protocol: GRPC, To: c.at, Service: c.service}
		r := p.RunWithin(t.Context(), plenty)
		if r.Status != c.status || r.Phase != c.phase || (r.Err != nil) != c.err || c.err && !strings.Contains(r.Err.Error(), c.want) || c.wantFirst != (r.FirstByte > 0) {
			t.Errorf("%s: %+v", name, r)
		}
	}
}
