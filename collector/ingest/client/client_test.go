package client_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/ingest"
	"github.com/kernosis/kernosis/collector/ingest/client"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.CheckLeaks(m.Run)) }

func socketPath(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "kernosis-client-") //nolint:usetesting // t.TempDir's may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "report.sock")
}

// agent is a real intake with a real socket that can be stopped and restarted.
type agent struct {
	t      testing.TB
	socket string
	stop   func()

	mu    sync.Mutex
	lines []string       // "check status reason: message"
	ids   map[string]int // how often each event came
	in    *ingest.Intake
}

func newAgent(t testing.TB, socket string) *agent {
	a := &agent{t: t, socket: socket, ids: map[string]int{}}
	a.start()
	t.Cleanup(func() { a.stop() })
	return a
}

func (a *agent) start() {
	a.t.Helper()
	in, err := ingest.New(ingest.Config{Sources: []ingest.Source{{
		Name: "disk-monitor", UIDs: []uint32{uint32(os.Geteuid())}, Conditions: []string{"DiskSlow", "DiskHot"},
	}}})
	if err != nil {
		a.t.Fatal(err)
	}
	s, err := ingest.Listen(a.socket, in)
	if err != nil {
		a.t.Fatal(err)
	}
	a.in = in
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { _ = in.Run(ctx, a.emit) })
	all.Go(func() {
		if err := s.Serve(ctx); err != nil {
			a.t.Error(err)
		}
	})
	a.stop = sync.OnceFunc(func() { cancel(); all.Wait() })
}

func (a *agent) emit(ev *event.Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	d := ev.Check
	if d == nil {
		return // an event of kind source
	}
	if d.ID != "" {
		if a.ids[d.ID]++; a.ids[d.ID] > 1 {
			return // as the engine does
		}
	}
	a.lines = append(a.lines, fmt.Sprintf("%s %s %s: %s", d.Check, d.Status, d.Reason, d.Message))
}

// wait waits until ok accepts the lines received from the agent.
func (a *agent) wait(what string, ok func(lines []string) bool) {
	a.t.Helper()
	testenv.UntilShown(a.t, what, 20*time.Second, func() (bool, string) {
		a.mu.Lock()
		lines := slices.Clone(a.lines)
		a.mu.Unlock()
		return ok(lines), fmt.Sprintf("%q", lines)
	})
}

// counted waits until the client's counters are as expected, because answers come with a delay.
func counted(t testing.TB, c *client.Client, ok func(client.Stats) bool) {
	t.Helper()
	testenv.UntilShown(t, "the client's counts", 20*time.Second, func() (bool, string) {
		s := c.Stats()
		return ok(s), fmt.Sprintf("%+v", s)
	})
}

func run(t testing.TB, c *client.Client) {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- c.Run(context.Background()) }()
	t.Cleanup(func() {
		_ = c.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func open(t testing.TB, socket string, s client.Source) *client.Client {
	t.Helper()
	c, err := client.New(socket, s)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestReportsArrive(t *testing.T) {
	socket := socketPath(t)
	a := newAgent(t, socket)
	c := open(t, socket, client.Source{Name: "disk-monitor", Gather: time.Millisecond,
		Conditions: []client.Condition{{Type: "DiskSlow", Status: client.False}}})
	run(t, c)
	a.wait("false", func(l []string) bool { return slices.Equal(l, []string{"disk-monitor/DiskSlow ok : "}) })
	if err := c.SetCondition(client.Condition{Type: "DiskSlow", Status: client.True, Reason: "Latency", Message: "2 s"}); err != nil {
		t.Fatal(err)
	}
	a.wait("true", func(l []string) bool { return slices.Contains(l, "disk-monitor/DiskSlow problem Latency: 2 s") })
	for i := range 250 { // more than fit into a report
		if err := c.Event(client.Event{Severity: client.Warn, Reason: "Retry", Message: strconv.Itoa(i)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	a.wait("all events, in order", func(l []string) bool {
		var got []string
		for _, s := range l {
			if n, ok := strings.CutPrefix(s, "disk-monitor/warn problem Retry: "); ok {
				got = append(got, n)
			}
		}
		for i := range got {
			if got[i] != strconv.Itoa(i) {
				return false
			}
		}
		return len(got) == 250
	})
	if s := c.Stats(); s.Events != 250 || s.Full+s.Refused+s.Discarded != 0 || s.Waiting != 0 {
		t.Errorf("%+v", s)
	}
	if err := c.Event(client.Event{}); !errors.Is(err, client.ErrClosed) {
		t.Errorf("after close: %v", err)
	}
	if err := c.SetCondition(client.Condition{}); !errors.Is(err, client.ErrClosed) {
		t.Errorf("after close: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
}

// Events that waited while the clock was set back are in the future; they arrive with the others.
func TestClockSetBack(t *testing.T) {
	socket := socketPath(t)
	c := open(t, socket, client.Source{Name: "disk-monitor"})
	for i, at := range []time.Time{{}, time.Now().Add(5 * time.Minute), {}} {
		if err := c.Event(client.Event{Severity: client.Warn, Reason: "Retry", Message: strconv.Itoa(i), Timestamp: at}); err != nil {
			t.Fatal(err)
		}
	}
	a := newAgent(t, socket)
	run(t, c)
	a.wait("all three", func(l []string) bool { return len(l) == 3 })
	counted(t, c, func(s client.Stats) bool { return s.Events == 3 && s.Refused == 0 })
}

// While no agent answers, events are kept up to the buffer's size; then all arrive, with the
// current conditions.
func TestAgentIsAway(t *testing.T) {
	socket := socketPath(t)
	failed := make(chan error, 1000)
	c := open(t, socket, client.Source{Name: "disk-monitor", Gather: time.Millisecond, Buffer: 50, OnError: func(err error) { failed <- err }})
	run(t, c)
	if err := <-failed; !strings.Contains(err.Error(), "no such file") {
		t.Errorf("got %v", err)
	}
	dropped := 0
	for i := range 60 {
		if err := c.Event(client.Event{Severity: client.Info, Reason: "Kept", Message: strconv.Itoa(i)}); errors.Is(err, client.ErrFull) {
			dropped++
		}
	}
	for _, status := range []client.ConditionStatus{client.True, client.False, client.True} {
		if err := c.SetCondition(client.Condition{Type: "DiskHot", Status: status, Reason: "Hot"}); err != nil {
			t.Fatal(err)
		}
	}
	if s := c.Stats(); dropped != 10 || s.Full != 10 || s.Waiting != 50 || s.Failures == 0 {
		t.Errorf("dropped %d, %+v", dropped, s)
	}
	a := newAgent(t, socket)
	a.wait("all", func(l []string) bool {
		return len(l) == 51 && l[0] == "disk-monitor/info problem Kept: 0" && l[50] == "disk-monitor/DiskHot problem Hot: Hot"
	})
}

// An agent that restarts gets the conditions again without asking for them.
func TestAgentRestarts(t *testing.T) {
	socket := socketPath(t)
	a := newAgent(t, socket)
	c := open(t, socket, client.Source{Name: "disk-monitor", Heartbeat: 50 * time.Millisecond, Gather: -1,
		Conditions: []client.Condition{{Type: "DiskHot", Status: client.True, Reason: "Hot"}}})
	run(t, c)
	a.wait("true", func(l []string) bool { return len(l) == 1 })
	a.stop()
	a.start()
	t.Cleanup(func() { a.stop() })
	a.wait("true again", func(l []string) bool { return len(l) == 2 })
}

// If an answer is lost, the client sends the report again, and the events are the same.
func TestLostAnswer(t *testing.T) {
	socket, hidden := socketPath(t), socketPath(t)
	a := newAgent(t, hidden)
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", hidden)
	}}
	defer tr.CloseIdleConnections()
	var mu sync.Mutex
	lost := 0
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		req, err := http.NewRequestWithContext(r.Context(), r.Method, "http://x"+r.URL.Path, r.Body)
		if err != nil {
			t.Error(err)
			return
		}
		req.Header = r.Header
		resp, err := tr.RoundTrip(req)
		if err != nil {
			t.Error(err)
			return
		}
		resp.Body.Close()
		mu.Lock()
		defer mu.Unlock()
		if lost++; lost <= 3 {
			panic(http.ErrAbortHandler) // the agent has accepted it, but the client gets no answer
		}
	})}
	go func() { _ = srv.Serve(l) }()
	defer srv.Close()
	c := open(t, socket, client.Source{Name: "disk-monitor", Gather: 10 * time.Millisecond})
	for i := range 5 {
		if err := c.Event(client.Event{Severity: client.Warn, Reason: "Once", Message: strconv.Itoa(i)}); err != nil {
			t.Fatal(err)
		}
	}
	run(t, c)
	counted(t, c, func(s client.Stats) bool { return s.Events == 5 })
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.lines) != 5 {
		t.Errorf("%q", a.lines)
	}
	for id, n := range a.ids {
		if n != 4 {
			t.Errorf("%s came %d times", id, n)
		}
	}
}

func TestRefused(t *testing.T) {
	socket := socketPath(t)
	a := newAgent(t, socket)
	failed := make(chan error, 1000)
	c := open(t, socket, client.Source{Name: "disk-monitor", Gather: time.Millisecond, OnError: func(err error) { failed <- err }})
	if err := c.Event(client.Event{Severity: "fatal", Reason: "bad reason"}); err != nil {
		t.Fatal(err)
	}
	run(t, c)
	refused, ok := errors.AsType[*client.RefusedError](<-failed)
	if !ok || refused.Status != http.StatusBadRequest || len(refused.Answer.Fields) != 2 ||
		!strings.Contains(refused.Error(), `events[0].severity: "fatal", want info or warn`) {
		t.Errorf("got %v", refused)
	}
	// It is not sent again, but later events are.
	if err := c.Event(client.Event{Severity: client.Info, Reason: "Good", Message: strings.Repeat("x", 2000)}); err != nil {
		t.Fatal(err)
	}
	a.wait("the good one", func(l []string) bool {
		return len(l) == 1 && strings.HasPrefix(l[0], "disk-monitor/info problem Good: xxx")
	})
	counted(t, c, func(s client.Stats) bool { return s.Refused == 1 && s.Events == 1 })
}

// The agent slows down a flood of events; the heartbeat continues, and nothing is lost.
func TestFlood(t *testing.T) {
	socket := socketPath(t)
	a := newAgent(t, socket)
	c := open(t, socket, client.Source{Name: "disk-monitor", Gather: time.Millisecond, Conditions: []client.Condition{{Type: "DiskHot", Status: client.False}}})
	for i := range 320 { // 300 at once, then 20/s
		if err := c.Event(client.Event{Severity: client.Info, Reason: "Flood", Message: strconv.Itoa(i)}); err != nil {
			t.Fatal(err)
		}
	}
	run(t, c)
	a.wait("all", func(l []string) bool { return len(l) == 321 })
	// Four with events, and at least one heartbeat after a refusal.
	counted(t, c, func(s client.Stats) bool { return s.Events == 320 && s.Failures > 0 && s.Reports >= 5 })
}

func TestDiscard(t *testing.T) {
	failed := make(chan error, 1000)
	c := open(t, socketPath(t), client.Source{Name: "disk-monitor", Gather: time.Millisecond, Discard: true, OnError: func(err error) { failed <- err }})
	for range 3 {
		if err := c.Event(client.Event{Severity: client.Info, Reason: "Gone"}); err != nil {
			t.Fatal(err)
		}
	}
	run(t, c)
	<-failed
	counted(t, c, func(s client.Stats) bool { return s.Discarded == 3 })
}

// Close gives up if nobody answers, and reports what is left.
func TestCloseWithoutAgent(t *testing.T) {
	c := open(t, socketPath(t), client.Source{Name: "disk-monitor"})
	if err := c.Event(client.Event{Severity: client.Info, Reason: "Left"}); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err == nil || !strings.Contains(err.Error(), "1 events were not sent") {
		t.Errorf("got %v", err)
	}
	if s := c.Stats(); s.Discarded != 1 || s.Waiting != 0 {
		t.Errorf("%+v", s)
	}
}

func TestSourceMistakes(t *testing.T) {
	for want, s := range map[string]client.Source{
		"name is missing":         {},
		"more than the heartbeat": {Name: "a", Heartbeat: time.Minute, ValidFor: 30 * time.Second},
		"want 5s to 1h":           {Name: "a", ValidFor: 2 * time.Hour},
		"17 conditions":           {Name: "a", Conditions: make([]client.Condition, 17)},
		"want more than 0":        {Name: "a", Heartbeat: -1},
	} {
		if _, err := client.New("/x", s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", s, err, want)
		}
	}
	if _, err := client.New("/x", client.Source{Name: "a", Heartbeat: time.Hour}); err == nil {
		t.Error("a heartbeat that is as long as reports may count")
	}
	c := open(t, "/x", client.Source{Name: "a", Conditions: make([]client.Condition, 16)})
	if err := c.SetCondition(client.Condition{Type: "More"}); err == nil {
		t.Error("a 17th condition")
	}
}
