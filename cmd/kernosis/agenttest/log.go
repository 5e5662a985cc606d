package agenttest

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kernosis/kernosis/vmtest/await"
)

// Log keeps what is written to it. The zero value is ready, and safe for one
// waiter and any number of writers.
type Log struct {
	mu      sync.Mutex
	b       strings.Builder
	written chan struct{} // made by the first waiter
}

// Wait returns the content once ok is true for it, or with false after the time, which
// [await.Within] stretches.
func (l *Log) Wait(within time.Duration, ok func(string) bool) (string, bool) {
	deadline := time.After(await.Within(within))
	l.mu.Lock()
	if l.written == nil {
		l.written = make(chan struct{}, 1)
	}
	l.mu.Unlock()
	for {
		if s := l.String(); ok(s) {
			return s, true
		}
		select {
		case <-l.written:
		case <-deadline:
			return l.String(), false
		}
	}
}

// URL waits until a log of an agent says where it serves HTTP.
func (l *Log) URL(t testing.TB) string {
	t.Helper()
	const mark = "url=http://"
	text, ok := l.Wait(20*time.Second, func(s string) bool {
		_, rest, ok := strings.Cut(s, mark)
		return ok && strings.Contains(rest, "/metrics")
	})
	if !ok {
		t.Fatalf("no address in the log:\n%s", text)
	}
	_, rest, _ := strings.Cut(text, mark)
	address, _, _ := strings.Cut(rest, "/metrics")
	return "http://" + address
}

// Write appends to the log; it never fails.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.written <- struct{}{}: // nil until somebody waits
	default:
	}
	return l.b.Write(p)
}

func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
