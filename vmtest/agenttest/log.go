package agenttest

import (
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/vmtest/logbuffer"
)

// Log is the log of an agent. The zero value is ready for use.
type Log struct{ logbuffer.Buffer }

// URL waits until the log contains the URL at which the agent serves HTTP, and returns it.
func (l *Log) URL(t testing.TB) string {
	t.Helper()
	const mark = "url=http"
	text, ok := l.Wait(20*time.Second, func(s string) bool {
		_, rest, ok := strings.Cut(s, mark)
		return ok && strings.Contains(rest, "/metrics")
	})
	if !ok {
		t.Fatalf("no address in the log:\n%s", text)
	}
	_, rest, _ := strings.Cut(text, mark)
	address, _, _ := strings.Cut(rest, "/metrics")
	return "http" + address
}
