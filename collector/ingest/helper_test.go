package ingest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/ingest/client"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// asClient makes this binary the client, for tests that need one of another user.
const asClient = "KERNOSIS_TEST_REPORT_TO"

func TestMain(m *testing.M) {
	if socket := os.Getenv(asClient); socket != "" {
		os.Exit(postAsChild(socket))
	}
	os.Exit(testenv.CheckLeaks(m.Run))
}

// reported collects what an intake emits.
type reported struct {
	mu     sync.Mutex
	events []event.CheckData
	sights []string // sources that came up or went down, as "stem true" or "stem false: reason"
	more   chan struct{}
}

func newReported() *reported { return &reported{more: make(chan struct{}, 1)} }

func (l *reported) emit(ev *event.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if up := ev.SourceUp; up != nil {
		l.sights = append(l.sights, strings.TrimSuffix(fmt.Sprintf("%s %v: %s", up.Stem, up.Up, up.Reason), ": "))
		return
	}
	l.events = append(l.events, *ev.Check)
	select {
	case l.more <- struct{}{}:
	default:
	}
}

// take returns what was reported since the last call, as "check status reason: message".
func (l *reported) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]string, 0, len(l.events))
	for _, e := range l.events {
		out = append(out, strings.TrimSuffix(e.Check+" "+e.Status+" "+e.Reason+": "+e.Message, ": "))
	}
	l.events = nil
	return out
}

// seen returns the sources that came up or went down since the last call.
func (l *reported) seen() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer func() { l.sights = nil }()
	return l.sights
}

func sources() []Source {
	return []Source{
		{Name: "gpu-monitor", Conditions: []string{"GPUUnhealthy", "GPUHot"}, Heartbeat: time.Minute},
		{Name: "door-monitor", Conditions: []string{"DoorOpen"}, UIDs: []uint32{0, 4711}},
		{Name: "events-only"},
	}
}

// runIntake runs an intake with sources until the test ends.
func runIntake(t testing.TB, cfg Config) (*Intake, *reported) {
	t.Helper()
	in, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	l := newReported()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- in.Run(ctx, l.emit) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	for !in.running() {
		time.Sleep(time.Millisecond) // until the goroutine has begun
	}
	return in, l
}

func (in *Intake) running() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.emit != nil
}

func body(t testing.TB, s any) []byte {
	t.Helper()
	raw, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func status(source string, conditions ...client.Condition) client.Status {
	return client.Status{Source: source, Conditions: conditions}
}

// child runs this binary as a user, posting text to the socket; it returns the answer.
func child(t *testing.T, uid uint32, socket, text string) (int, string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asClient+"="+socket)
	cmd.Stdin = strings.NewReader(text)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	code, rest, _ := strings.Cut(string(out), " ")
	n, err := strconv.Atoi(code)
	if err != nil {
		return 0, string(out)
	}
	return n, rest
}
