package logsource

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/logpattern"
	"github.com/kernosis/kernosis/collector/logs"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.CheckLeaks(m.Run)) }

// patience is how long anything may take on a busy machine.
const patience = 30 * time.Second

func patterns(t testing.TB, exprs ...string) *logpattern.Set {
	t.Helper()
	var list []logpattern.Pattern
	for i, e := range exprs {
		list = append(list, logpattern.Pattern{Name: strconv.Itoa(i), Expr: e})
	}
	set, err := logpattern.Compile(list)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// recorder keeps what sources emit.
type recorder struct {
	mu      sync.Mutex
	events  []*event.Event
	settled int // number of settled lines
	news    chan struct{}
}

func newRecorder() *recorder { return &recorder{news: make(chan struct{}, 1)} }

func (r *recorder) emit(ev *event.Event) {
	r.mu.Lock()
	r.events = append(r.events, ev.Clone())
	r.mu.Unlock()
	select {
	case r.news <- struct{}{}:
	default:
	}
}

func (r *recorder) settle() {
	n := len(r.lines())
	r.mu.Lock()
	defer r.mu.Unlock()
	r.settled = n
}

func (r *recorder) settledLines() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.settled
}

func (r *recorder) all() []*event.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

// reported returns the events as text: a line's text, "+stem", "-stem: reason" and
// "lost stem count reason".
func (r *recorder) reported() (out []string) {
	for _, ev := range r.all() {
		switch {
		case ev.Log != nil:
			out = append(out, ev.Log.Text)
		case ev.SourceUp != nil && ev.SourceUp.Up:
			out = append(out, "+"+ev.SourceUp.Stem)
		case ev.SourceUp != nil:
			out = append(out, "-"+ev.SourceUp.Stem+": "+ev.SourceUp.Reason)
		case ev.Lost != nil:
			out = append(out, fmt.Sprintf("lost %s %d %s", ev.Lost.Stem, ev.Lost.Count, ev.Lost.Reason))
		}
	}
	return out
}

func (r *recorder) lines() (out []string) {
	for _, ev := range r.all() {
		if ev.Log != nil {
			out = append(out, ev.Log.Text)
		}
	}
	return out
}

// until waits until ok returns true.
func (r *recorder) until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	look := time.NewTicker(5 * time.Millisecond) // for conditions that change without an event
	defer look.Stop()
	for deadline := time.After(testenv.Within(patience)); !ok(); {
		select {
		case <-r.news:
		case <-look.C:
		case <-deadline:
			t.Fatalf("no %s; reported %q", what, r.reported())
		}
	}
}

func (r *recorder) has(text string) func() bool {
	return func() bool { return slices.Contains(r.reported(), text) }
}

// running are running Sources.
type running struct {
	*Sources
	rec    *recorder
	cancel context.CancelFunc
	done   chan struct{}
}

// run runs sources until stop is called or the test ends.
func run(t testing.TB, s *Sources, rec *recorder) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &running{Sources: s, rec: rec, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		if err := s.Run(ctx, rec.emit, rec.settle); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(r.stop)
	return r
}

func (r *running) stop() { r.cancel(); <-r.done }

func open(t testing.TB, set *logpattern.Set, o Options, configs ...Config) *Sources {
	t.Helper()
	s, err := New(configs, set, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// textFile is a log file that a test writes.
type textFile struct {
	t    testing.TB
	path string
}

func newFile(t testing.TB, name string) *textFile {
	f := &textFile{t: t, path: filepath.Join(t.TempDir(), name)}
	f.add("")
	return f
}

func (f *textFile) add(text string) {
	f.t.Helper()
	w, err := os.OpenFile(f.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		f.t.Fatal(err)
	}
	if _, err := w.WriteString(text); err != nil {
		f.t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		f.t.Fatal(err)
	}
}

func (f *textFile) config(name string) Config { return Config{Name: name, Plugin: File, Path: f.path} }

// script is a reader that a test controls.
type script struct {
	run func(ctx context.Context, handle func(logs.Item) error) error
	pos func() logs.Position
}

func (s *script) Run(ctx context.Context, handle func(logs.Item) error) error {
	return s.run(ctx, handle)
}

func (s *script) Position() logs.Position {
	if s.pos == nil {
		return ""
	}
	return s.pos()
}

// scripted makes the source of a log use a script as its reader.
func scripted(s *Sources, i int, run func(ctx context.Context, handle func(logs.Item) error, status func(error)) error) {
	s.logs[i].first = 0
	s.logs[i].open = func(_ *source, _ logs.Position, status func(error)) (reader, error) {
		return &script{run: func(ctx context.Context, handle func(logs.Item) error) error { return run(ctx, handle, status) }}, nil
	}
}

func line(text string) logs.Item {
	return logs.Item{Line: &logs.Line{Time: time.Now(), BootTime: time.Hour, Text: []byte(text)}}
}
