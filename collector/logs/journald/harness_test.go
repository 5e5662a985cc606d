package journald

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kernosis/kernosis/collector/logs"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// patience is how long anything may take on a busy machine.
const patience = 60 * time.Second

// running is a running Reader with what it has handed over: a line as its text, a loss as
// "-reason:lines".
type running struct {
	t      *testing.T
	r      *Reader
	cancel context.CancelFunc
	done   chan error
	news   chan struct{}

	mu     sync.Mutex
	items  []string
	lines  []logs.Line
	losses []logs.Loss
	status []string
}

// start runs a reader that begins an hour ago unless cfg sets something else.
func start(t *testing.T, cfg Config, change ...func(*Reader)) *running {
	t.Helper()
	c := &running{t: t, done: make(chan error, 1), news: make(chan struct{}, 1)}
	if cfg.Lookback == 0 {
		cfg.Lookback = 24 * time.Hour
	}
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
	open := func() {
		var err error
		if c.r, err = New(cfg); err != nil {
			t.Error(err)
		}
		for _, f := range change {
			f(c.r)
		}
	}
	open()
	ctx, cancel := context.WithCancel(t.Context())
	c.cancel = cancel
	go func() { // as package logsource
		err := c.r.Run(ctx, c.handle)
		for err != nil && ctx.Err() == nil {
			cfg.Status(err)
			time.Sleep(10 * time.Millisecond)
			cfg.Position = c.r.Position()
			open()
			err = c.r.Run(ctx, c.handle)
		}
		c.done <- err
	}()
	t.Cleanup(func() { c.stop() })
	return c
}

func (c *running) handle(item logs.Item) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if item.Loss != nil {
		c.items = append(c.items, fmt.Sprintf("-%s:%d", item.Loss.Reason, item.Loss.Lines))
		c.losses = append(c.losses, *item.Loss)
	} else {
		c.items = append(c.items, string(item.Line.Text))
		c.lines = append(c.lines, clone(item.Line))
	}
	c.notify()
	return nil
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
			c.t.Fatalf("no %s; got %.2000q, status %q", what, c.items, c.status)
		}
	}
}

// want waits until exactly these items were handed over.
func (c *running) want(items ...string) {
	c.t.Helper()
	c.until(fmt.Sprintf("%.2000q", items), func() bool { return len(c.items) >= len(items) })
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Equal(c.items, items) {
		c.t.Fatalf("got %.2000q, want %.2000q", c.items, items)
	}
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

// journal is a folder of journal files that systemd-journal-remote writes.
type journal struct {
	t    *testing.T
	dir  string
	tool string
	n    int // entries so far
}

func newJournal(t *testing.T) *journal {
	t.Helper()
	if _, err := exec.LookPath("journalctl"); err != nil {
		t.Skip("journalctl is not there: a machine without systemd")
	}
	for _, tool := range []string{"/lib/systemd/systemd-journal-remote", "/usr/lib/systemd/systemd-journal-remote"} {
		if _, err := os.Stat(tool); err == nil {
			return &journal{t: t, dir: t.TempDir(), tool: tool}
		}
	}
	t.Skip("nothing writes journal files here (package systemd-journal-remote)")
	return nil
}

// The boots of test entries.
const (
	boot1 = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	boot2 = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
)

// entry returns an entry in the export format, received n seconds after an hour ago. Its boot is
// boot2, unless fields sets one.
func (j *journal) entry(message string, fields ...string) []byte {
	j.n++
	at := time.Now().Add(-time.Hour).Truncate(time.Hour).Add(time.Duration(j.n) * time.Second).UnixMicro()
	boot := boot2
	if i := slices.Index(fields, "_BOOT_ID"); i >= 0 {
		boot, fields = fields[i+1], slices.Delete(slices.Clone(fields), i, i+2)
	}
	return exported(append([]string{
		"__CURSOR", fmt.Sprintf("s=%s;i=%x;b=%s;m=%x;t=%x;x=%x", boot1, j.n, boot, j.n*1_000_000, at, j.n),
		"__REALTIME_TIMESTAMP", strconv.FormatInt(at, 10), "__MONOTONIC_TIMESTAMP", strconv.Itoa(j.n * 1_000_000),
		"_BOOT_ID", boot, "_MACHINE_ID", strings.Repeat("c", 32), "_HOSTNAME", "node", "MESSAGE", message,
	}, fields...)...)
}

// write adds entries to a file of the journal, which it creates if necessary.
func (j *journal) write(file string, entries ...[]byte) {
	j.t.Helper()
	j.writeWith(nil, file, entries...)
}

func (j *journal) writeWith(options []string, file string, entries ...[]byte) {
	j.t.Helper()
	ctx, cancel := context.WithTimeout(j.t.Context(), testenv.Within(patience))
	defer cancel()
	cmd := exec.CommandContext(ctx, j.tool, append(options, "--output="+filepath.Join(j.dir, file), "-")...)
	cmd.Stdin = bytes.NewReader(bytes.Join(entries, nil))
	if out, err := cmd.CombinedOutput(); err != nil {
		j.t.Fatalf("systemd-journal-remote: %v\n%s", err, out)
	}
}

// clone returns a copy of a line that stays valid.
func clone(l *logs.Line) logs.Line {
	c := *l
	c.Text = bytes.Clone(l.Text)
	return c
}
