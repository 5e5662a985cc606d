package agenttest

import (
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/vmtest/logbuffer"
)

// Log is that of an agent. The zero value is ready.
type Log struct{ logbuffer.Buffer }

// URL waits until the log says where the agent serves HTTP.
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
