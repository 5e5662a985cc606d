package web

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kernosis/kernosis/detector/problem"
)

func TestHandler(t *testing.T) {
	healthy, ready := error(nil), errors.New("sources are not attached yet")
	reg := prometheus.NewRegistry()
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "kernosis_test"}, func() float64 { return 7 }))
	h := Handler(reg, func() error { return healthy }, func() error { return ready }, func() []string { return []string{"degraded: log/kmsg", "degraded: pins"} }, nil, nil)
	get := func(method, path string) (int, string) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
		return w.Code, strings.TrimSpace(w.Body.String())
	}
	check := func(method, path string, status int, body string) {
		t.Helper()
		if gotStatus, gotBody := get(method, path); gotStatus != status || !strings.Contains(gotBody, body) {
			t.Errorf("%s %s: %d %q, want %d with %q", method, path, gotStatus, gotBody, status, body)
		}
	}
	check("GET", "/healthz", http.StatusOK, "ok")
	if _, body := get("GET", "/healthz"); body != "ok" {
		t.Errorf("healthz says %q", body)
	}
	check("GET", "/readyz", http.StatusServiceUnavailable, "sources are not attached yet")
	check("GET", "/metrics", http.StatusOK, "kernosis_test 7")
	check("POST", "/healthz", http.StatusMethodNotAllowed, "")
	check("GET", "/other", http.StatusNotFound, "")
	healthy, ready = errors.New("oomkill: the canary of 9s ago did not reach the engine"), nil
	check("GET", "/healthz", http.StatusServiceUnavailable, "canary")
	check("GET", "/readyz", http.StatusOK, "ok\ndegraded: log/kmsg\ndegraded: pins")
}

// An unhealthy agent is logged again each minute, also without TLS.
func TestUnhealthyIsLoggedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		access, err := (&AccessConfig{Plain: true, Log: slog.New(slog.NewTextHandler(&log, nil))}).For("10.0.0.7:20257")
		if err != nil {
			t.Fatal(err)
		}
		sick := func() error { return errors.New("sick") }
		h := Handler(prometheus.NewRegistry(), sick, sick, nil, nil, access)
		for range 3 {
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/healthz", nil))
			time.Sleep(time.Minute)
		}
		if n := strings.Count(log.String(), "not healthy"); n != 3 {
			t.Errorf("logged %d times:\n%s", n, &log)
		}
	})
}

// What is served on loopback can be read on this machine only, and not by a site whose name resolves to
// loopback.
func TestNamesOnLoopback(t *testing.T) {
	fine := func() error { return nil }
	pages := map[string]http.Handler{"/{$}": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "the page") })}
	for _, server := range []struct {
		handler http.Handler
		paths   []string
	}{
		{Handler(prometheus.NewRegistry(), fine, fine, nil, pages, nil), []string{"/", "/metrics", "/healthz", "/readyz"}},
		{StatusHandler(fine, func() []problem.Condition { return nil }, nil), []string{"/conditions", "/healthz", "/debug/pprof/", "/debug/pprof/cmdline"}},
	} {
		address := serve(t, server.handler)
		for host, want := range map[string]int{
			"localhost:20257": http.StatusOK, "127.0.0.1:20257": http.StatusOK, "[::1]:20257": http.StatusOK, "[::1]": http.StatusOK, "localhost": http.StatusOK,
			"evil.example:20257": http.StatusMisdirectedRequest, "evil.example": http.StatusMisdirectedRequest,
			"localhost.evil.example": http.StatusMisdirectedRequest, "": http.StatusMisdirectedRequest,
		} {
			for _, path := range server.paths {
				if code := getAs(t, address, host, path); code != want {
					t.Errorf("%q %s: %d, want %d", host, path, code, want)
				}
			}
		}
	}
}

// serve serves on loopback until the test ends.
func serve(t *testing.T, h http.Handler) (address string) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, l, h, nil, NewCounts()) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// getAs returns the status of the response to a request with that Host header, which may be empty.
func getAs(t *testing.T, address, host, path string) int {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET %s HTTP/1.0\r\nHost: %s\r\n\r\n", path, host)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

func TestServeEndsWithItsContext(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, l, http.NotFoundHandler(), nil, NewCounts()) }()
	resp, err := http.Get("http://" + l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Error(err)
	}
	resp.Body.Close()
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("ended with %v", err)
	}
	if resp, err := http.Get("http://" + l.Addr().String()); err == nil {
		resp.Body.Close()
		t.Error("still answers")
	}
}
