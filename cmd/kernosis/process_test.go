package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kernosis/kernosis/bpf"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/reporter/journal"
)

// process is a running "kernosis run" with folders of its own.
type process struct {
	t      testing.TB
	state  string
	pins   string
	target string
	args   []string

	cmd    *exec.Cmd
	stderr syncBuffer

	mu      sync.Mutex
	entries []journal.Entry
	changed chan struct{}
}

func newProcess(t testing.TB, args ...string) *process {
	t.Helper()
	dir := t.TempDir()
	p := &process{
		t: t, state: filepath.Join(dir, "state"), target: filepath.Join(dir, "targets.d"), args: args,
		pins:    fmt.Sprintf("/sys/fs/bpf/kernosis-e2e-%d-%d", os.Getpid(), time.Now().UnixNano()),
		changed: make(chan struct{}, 1),
	}
	t.Cleanup(func() {
		p.kill()
		os.RemoveAll(p.pins)
		if t.Failed() {
			t.Logf("stderr of the agent:\n%s", p.stderr.String())
		}
	})
	return p
}

func (p *process) start() {
	p.t.Helper()
	args := append([]string{"run", "-o", "json", "--state-dir", p.state, "--pin-root", p.pins,
		"--targets-dir", p.target, "--listen", ""}, p.args...)
	p.cmd = exec.Command(os.Args[0], args...)
	p.cmd.Env = append(os.Environ(), beKernosis+"=1")
	p.cmd.Stderr = &p.stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	go p.read(out)
}

func (p *process) read(r io.Reader) {
	s := bufio.NewScanner(r)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		var e journal.Entry
		if err := json.Unmarshal(s.Bytes(), &e); err != nil {
			p.t.Errorf("line is no entry: %v: %s", err, s.Text())
			continue
		}
		p.mu.Lock()
		p.entries = append(p.entries, e)
		p.mu.Unlock()
		select {
		case p.changed <- struct{}{}:
		default:
		}
	}
}

// wait returns the entries once ok is true for them.
func (p *process) wait(what string, within time.Duration, ok func([]journal.Entry) bool) []journal.Entry {
	p.t.Helper()
	deadline := time.After(within)
	for {
		if entries := p.snapshot(); ok(entries) {
			return entries
		}
		select {
		case <-p.changed:
		case <-deadline:
			p.t.Fatalf("no %s within %s", what, within)
		}
	}
}

// waitSources waits until every stem has told that it sees, since the n-th
// entry.
func (p *process) waitSources(since int) {
	p.t.Helper()
	p.wait("sources", 30*time.Second, func(entries []journal.Entry) bool {
		up := map[string]bool{}
		for _, e := range entries[min(since, len(entries)):] {
			if e.Event != nil && e.Event.Kind == event.Source {
				up[e.Event.SourceUp.Stem] = e.Event.SourceUp.Up
			}
		}
		for _, s := range bpf.Stems() {
			if !up[s.Name] {
				return false
			}
		}
		return true
	})
}

func (p *process) snapshot() []journal.Entry {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]journal.Entry(nil), p.entries...)
}

func (p *process) kill() {
	if p.cmd != nil && p.cmd.ProcessState == nil {
		p.cmd.Process.Kill()
		p.cmd.Wait()
	}
}

// stop ends the agent as systemd and kubelet do.
func (p *process) stop() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Fatal(err)
	}
	if err := p.cmd.Wait(); err != nil {
		p.t.Errorf("ended with %v", err)
	}
}

type syncBuffer struct {
	mu      sync.Mutex
	b       strings.Builder
	written chan struct{} // made by the first waiter
}

// wait returns the content once ok is true for it, or false after the time.
func (b *syncBuffer) wait(within time.Duration, ok func(string) bool) (string, bool) {
	deadline := time.After(within)
	b.mu.Lock()
	if b.written == nil {
		b.written = make(chan struct{}, 1)
	}
	b.mu.Unlock()
	for {
		if s := b.String(); ok(s) {
			return s, true
		}
		select {
		case <-b.written:
		case <-deadline:
			return b.String(), false
		}
	}
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case b.written <- struct{}{}: // nil until somebody waits
	default:
	}
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func waitURL(t *testing.T, log *syncBuffer) string {
	t.Helper()
	const mark = "url=http://"
	text, ok := log.wait(20*time.Second, func(s string) bool {
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

func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(raw)
}
