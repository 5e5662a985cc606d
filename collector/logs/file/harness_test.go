package file

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kernosis/kernosis/collector/logs"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// running is a running Reader with what it has handed over: a line as its text, a loss as
// "-reason:lines".
type running struct {
	t      *testing.T
	r      *Reader
	cancel context.CancelFunc
	done   chan error
	news   chan struct{} // holds a token while there is something new

	handing atomic.Int64 // items passed to handle
	held    sync.Mutex   // blocks handle, but not Status, which the reader may call first

	mu     sync.Mutex
	items  []string
	lines  []logs.Line
	status []string
}

// patience is how long anything may take on a busy machine.
const patience = 30 * time.Second

// start runs a reader that is woken only by inotify, unless change sets something else.
func start(t *testing.T, cfg Config, change ...func(*Reader)) *running {
	t.Helper()
	c := &running{t: t, done: make(chan error, 1), news: make(chan struct{}, 1)}
	cfg.Status = func(err error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		text := "up"
		if err != nil {
			text = err.Error()
		}
		if n := len(c.status); n == 0 || c.status[n-1] != text {
			c.status = append(c.status, text)
			c.notify()
		}
	}
	r, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r.pollEvery, r.partialAfter = time.Hour, time.Hour // only inotify wakes it
	for _, f := range change {
		f(r)
	}
	ctx, cancel := context.WithCancel(t.Context())
	c.r, c.cancel = r, cancel
	go func() { c.done <- r.Run(ctx, c.handle) }()
	t.Cleanup(func() { c.stop() })
	return c
}

func (c *running) handle(item logs.Item) error {
	c.handing.Add(1)
	c.held.Lock()
	defer c.held.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if item.Loss != nil {
		c.items = append(c.items, fmt.Sprintf("-%s:%d", item.Loss.Reason, item.Loss.Lines))
	} else {
		c.items = append(c.items, string(item.Line.Text))
		c.lines = append(c.lines, clone(item.Line))
	}
	c.notify()
	return nil
}

// hold writes a line and blocks the reader in handle until c.held.Unlock, so that it checks nothing
// meanwhile.
func (c *running) hold(l *logFile, line string) {
	c.t.Helper()
	c.held.Lock()
	before := c.handing.Load()
	l.write(line + "\n")
	deadline := time.Now().Add(testenv.Within(patience))
	for c.handing.Load() == before {
		if time.Now().After(deadline) {
			c.held.Unlock()
			c.t.Fatalf("line %q was not handed over", line)
		}
		time.Sleep(time.Millisecond)
	}
}

// untilAt waits for a position that contains text.
func (c *running) untilAt(text string) {
	c.t.Helper()
	testenv.UntilShown(c.t, "position with "+text, patience, func() (bool, string) {
		at := string(c.r.Position())
		return strings.Contains(at, text), at
	})
}

func (c *running) notify() {
	select {
	case c.news <- struct{}{}:
	default:
	}
}

// until waits for a condition that is checked after each item and status.
func (c *running) until(what string, ok func() bool) {
	c.t.Helper()
	deadline := time.After(testenv.Within(patience))
	for {
		c.mu.Lock()
		met := ok()
		c.mu.Unlock()
		if met {
			return
		}
		select {
		case <-c.news:
		case err := <-c.done:
			c.t.Fatalf("Run has ended: %v", err)
		case <-deadline:
			c.mu.Lock()
			defer c.mu.Unlock()
			c.t.Fatalf("no %s; got %q, status %q", what, c.items, c.status)
		}
	}
}

// want waits until exactly these items were handed over.
func (c *running) want(items ...string) {
	c.t.Helper()
	c.until(fmt.Sprintf("%q", items), func() bool { return len(c.items) >= len(items) })
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Equal(c.items, items) {
		c.t.Fatalf("got %q, want %q", c.items, items)
	}
}

// up waits until the file is being read.
func (c *running) up() *running {
	c.t.Helper()
	c.until("status up", func() bool { return len(c.status) > 0 && c.status[len(c.status)-1] == "up" })
	return c
}

// stop stops the reader, and returns its position.
func (c *running) stop() logs.Position {
	c.t.Helper()
	if c.cancel == nil {
		return c.r.Position()
	}
	c.cancel()
	c.cancel = nil
	select {
	case err := <-c.done:
		if err != nil {
			c.t.Errorf("Run = %v", err)
		}
	case <-time.After(testenv.Within(patience)):
		c.t.Fatal("Run goes on after its context has ended")
	}
	return c.r.Position()
}

// logFile is a log that a test writes.
type logFile struct {
	t    *testing.T
	path string
	f    *os.File

	clock time.Time // time of the last file
}

func newLog(t *testing.T, path string) *logFile {
	t.Helper()
	l := &logFile{t: t, path: path}
	l.reopen()
	t.Cleanup(func() { l.f.Close() })
	return l
}

// reopen opens the file at the path, like a writer that is signalled after a rotation.
func (l *logFile) reopen() {
	l.t.Helper()
	if l.f != nil {
		l.f.Close()
	}
	f, err := os.OpenFile(l.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		l.t.Fatal(err)
	}
	l.f = f
}

func (l *logFile) write(text string) {
	l.t.Helper()
	if _, err := l.f.WriteString(text); err != nil {
		l.t.Fatal(err)
	}
}

// rename rotates as logrotate does by default, without notifying the writer.
func (l *logFile) rename(to string) {
	l.t.Helper()
	if err := os.Rename(l.path, filepath.Join(filepath.Dir(l.path), to)); err != nil {
		l.t.Fatal(err)
	}
}

// copyTruncate rotates as logrotate does with copytruncate.
func (l *logFile) copyTruncate(to string) {
	l.t.Helper()
	b, err := os.ReadFile(l.path)
	if err != nil {
		l.t.Fatal(err)
	}
	l.put(to, string(b))
	if err := os.Truncate(l.path, 0); err != nil {
		l.t.Fatal(err)
	}
}

// compress does what logrotate does with a rotated file, keeping the file's time.
func (l *logFile) compress(name, ext string) {
	l.t.Helper()
	from := filepath.Join(filepath.Dir(l.path), name)
	st, err := os.Stat(from)
	if err != nil {
		l.t.Fatal(err)
	}
	b, err := os.ReadFile(from)
	if err != nil {
		l.t.Fatal(err)
	}
	l.put(name+ext, gzipOf(l.t, string(b)))
	if err := os.Chtimes(from+ext, st.ModTime(), st.ModTime()); err != nil {
		l.t.Fatal(err)
	}
	l.remove(name)
}

func gzipOf(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// put creates another file in the log's folder.
func (l *logFile) put(name, content string) {
	l.t.Helper()
	if err := os.WriteFile(filepath.Join(filepath.Dir(l.path), name), []byte(content), 0o600); err != nil {
		l.t.Fatal(err)
	}
}

func (l *logFile) remove(name string) {
	l.t.Helper()
	if err := os.Remove(filepath.Join(filepath.Dir(l.path), name)); err != nil {
		l.t.Fatal(err)
	}
}

// clone returns a copy of a line that stays valid.
func clone(l *logs.Line) logs.Line {
	c := *l
	c.Text = bytes.Clone(l.Text)
	return c
}
