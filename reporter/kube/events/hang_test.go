package events_test

import (
	"bytes"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/kernosis/kernosis/reporter/kube/events"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// The disk hangs just when the state is saved without a series that is over. That does not hold
// up new entries: the series goes on, and is reported once, also by the next process.
func TestTheDiskHangsWhenASeriesEnds(t *testing.T) {
	hung, hang := make(chan struct{}), make(chan struct{})
	reportHung, free := sync.OnceFunc(func() { close(hung) }), sync.OnceFunc(func() { close(hang) })
	defer free()
	var dir string
	a := newAgent(t, func(c *events.Config) {
		c.Idle, dir = time.Second, c.Dir
		c.Fault = func(s events.Stage) {
			if s != events.StageWritten {
				return
			}
			raw, err := os.ReadFile(filepath.Join(dir, events.StateFile+".new"))
			if err != nil {
				t.Error(err)
			}
			// The rule is there but its series is not: it was over.
			if bytes.Contains(raw, []byte("oom-kill")) && !bytes.Contains(raw, []byte(`"series"`)) {
				reportHung()
				<-hang
			}
		}
	})
	a.report(kill(""))
	a.sent(1)
	count := func(want int, inEvents int) {
		t.Helper()
		testenv.Until(t, "counts of the Events", 10*time.Second, func() bool {
			list := a.onNode()
			return len(list) == inEvents && total(list) == want
		})
	}
	count(1, 1)
	select {
	case <-hung:
	case <-time.After(testenv.Within(20 * time.Second)):
		t.Fatal("the series does not end")
	}
	began := time.Now()
	a.report(kill(""))
	count(2, 1)
	if took := time.Since(began); took > testenv.Within(5*time.Second) {
		t.Errorf("reported after %v", took)
	}
	free()
	count(2, 1)
	a.stop()
	if err := a.journal.Close(); err != nil {
		t.Fatal(err)
	}
	a.start()
	a.report(kill(""))
	a.sent(3)
	testenv.Until(t, "counts of the Events", 10*time.Second, func() bool { return total(a.onNode()) == 3 })
}
