package diagnosetest

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/reporter/journal"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// A service that stops answering is reported by its condition, also across a restart of the
// agent, and so is its recovery.
func TestServiceOfTheNode(t *testing.T) {
	testenv.OnlyInTestAll(t)
	var broken atomic.Bool
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if broken.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	defer func() { _ = s.Close(); <-done }()
	file := filepath.Join(t.TempDir(), "kernosis.yaml")
	config := fmt.Sprintf("services:\n  probes:\n  - {name: web, handler: http, address: %q, period: 1s, timeout: 1s, failureThreshold: 2, condition: WebDown}\n", l.Addr())
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	a := newAgent(t, "--config", file)
	since := 0
	waitFor := func(status problem.Status, reason, message string) {
		t.Helper()
		a.Wait(fmt.Sprintf("WebDown is %s", status), 60*time.Second, func(entries []journal.Entry) bool {
			for i := since; i < len(entries); i++ {
				for _, tr := range entries[i].Transitions {
					if c := tr.Condition; c != nil && c.Type == "WebDown" && c.Status == status {
						if c.Reason != reason || !strings.Contains(c.Message, message) {
							t.Errorf("%+v", c)
						}
						since = i + 1
						return true
					}
				}
			}
			return false
		})
	}
	a.Start()
	waitFor(problem.False, "NoWebDown", "the probe of web succeeds")
	broken.Store(true)
	waitFor(problem.True, "WebDown", "web: HTTP status 503 Service Unavailable from "+l.Addr().String())
	a.Kill()
	broken.Store(false)
	a.Start()
	waitFor(problem.False, "NoWebDown", "the probe of web succeeds")
	a.Stop()
}
