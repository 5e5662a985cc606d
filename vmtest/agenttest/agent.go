// Package agenttest runs the agent as a separate process, for tests on a real kernel: it starts and
// stops it as an operator or a crash would, and reads its output. Only tests may import it.
package agenttest

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kernosis/kernosis/bpf"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/process"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/reporter/console"
	"github.com/kernosis/kernosis/reporter/journal"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// Agent is a "kernosis run", or another command, with its own folders. It may be started again
// after it has ended.
type Agent struct {
	Path    string   // path of the executable
	Command string   // empty means run
	Env     []string // in addition to this process's
	Args    []string // added to those that Start sets
	// On calls its argument, which starts the process, where the process should run. The thread
	// that it uses must not end before the process. If On is nil, a thread of the test starts the
	// process.
	On func(start func() error) error
	// Output wraps the process's standard output, unless it is nil.
	Output func(stdout io.ReadCloser) io.Reader

	State   string // --state-dir
	Pins    string // --pin-root
	Targets string // --targets-dir
	Log     Log    // its standard error

	cmd *exec.Cmd

	mu      sync.Mutex
	current testing.TB // the test that an agent's failure fails
	entries []journal.Entry
	causes  []*console.Diagnosis
	changed chan struct{} // closed and replaced at each entry
}

// New returns an agent that is not started yet. At the end of the test it is killed, its pins are
// removed, and its log is printed if the test has failed.
func New(t testing.TB, path string, args ...string) *Agent {
	t.Helper()
	dir := t.TempDir()
	a := &Agent{
		current: t, Path: path, Args: args, State: filepath.Join(dir, "state"), Targets: filepath.Join(dir, "targets.d"),
		Pins:    fmt.Sprintf("/sys/fs/bpf/kernosis-e2e-%d-%d", os.Getpid(), time.Now().UnixNano()),
		changed: make(chan struct{}),
	}
	t.Cleanup(func() {
		a.Kill()
		os.RemoveAll(a.Pins)
		if t.Failed() {
			t.Logf("log of the agent:\n%s", a.Log.String())
		}
	})
	return a
}

// Program returns the path of kernosis, built from this checkout.
func Program(tb testing.TB) string {
	tb.Helper()
	return testenv.BuildProgram(tb, "github.com/kernosis/kernosis/cmd/kernosis")
}

// In makes errors of the agent fail the subtest t from now on until t ends. Parallel subtests use
// [Agent.WaitIn] instead.
func (a *Agent) In(t testing.TB) {
	a.mu.Lock()
	defer a.mu.Unlock()
	outer := a.current
	a.current = t
	t.Cleanup(func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.current = outer
	})
}

func (a *Agent) t() testing.TB {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.current
}

// newLinesOnly returns the path of a configuration that reads only new lines of the kernel log:
// older ones come from other tests.
func (a *Agent) newLinesOnly() string {
	path := filepath.Join(a.State, "config.yaml")
	if err := os.MkdirAll(a.State, 0o700); err != nil {
		a.t().Fatal(err)
	}
	if err := os.WriteFile(path, []byte("logs: [{plugin: kmsg, lookback: 0s}]\n"), 0o600); err != nil {
		a.t().Fatal(err)
	}
	return path
}

// Start starts the agent and reads its output.
func (a *Agent) Start() {
	a.t().Helper()
	own := []string{cmp.Or(a.Command, "run"), "-o", "json", "--state-dir", a.State, "--pin-root", a.Pins,
		"--targets-dir", a.Targets, "--listen", ""}
	if !slices.Contains(a.Args, "--log") {
		own = append(own, "--config", a.newLinesOnly())
	}
	a.cmd = exec.Command(a.Path, append(own, a.Args...)...)
	a.cmd.Env = append(os.Environ(), a.Env...)
	a.cmd.Stderr = &a.Log
	out, err := a.cmd.StdoutPipe()
	if err != nil {
		a.t().Fatal(err)
	}
	start := process.StartTied
	if a.On != nil {
		start = func(c *exec.Cmd) error {
			c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
			return a.On(c.Start)
		}
	}
	if err := start(a.cmd); err != nil {
		a.t().Fatal(err)
	}
	if a.Output != nil {
		go a.read(a.Output(out))
	} else {
		go a.read(out)
	}
}

func (a *Agent) read(r io.Reader) {
	s := bufio.NewScanner(r)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		var line struct {
			journal.Entry
			Diagnosis *console.Diagnosis `json:"diagnosis"`
		}
		if err := json.Unmarshal(s.Bytes(), &line); err != nil {
			a.t().Errorf("line is no entry: %v: %s", err, s.Text())
			continue
		}
		a.mu.Lock()
		if line.Diagnosis != nil {
			a.causes = append(a.causes, line.Diagnosis)
		} else {
			a.entries = append(a.entries, line.Entry)
		}
		close(a.changed)
		a.changed = make(chan struct{})
		a.mu.Unlock()
	}
}

// Entries returns what the agent has printed so far, over all its runs.
func (a *Agent) Entries() []journal.Entry {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]journal.Entry(nil), a.entries...)
}

// Wait waits until ok returns true for the entries, and returns them. It fails the test if that
// does not happen within the time that [testenv.Within] returns.
func (a *Agent) Wait(what string, within time.Duration, ok func([]journal.Entry) bool) []journal.Entry {
	t := a.t()
	t.Helper()
	return a.WaitIn(t, what, within, ok)
}

// WaitIn is Wait, but fails the test t.
func (a *Agent) WaitIn(t testing.TB, what string, within time.Duration, ok func([]journal.Entry) bool) []journal.Entry {
	t.Helper()
	within = testenv.Within(within)
	deadline := time.After(within)
	for {
		a.mu.Lock()
		changed := a.changed
		a.mu.Unlock()
		if entries := a.Entries(); ok(entries) {
			return entries
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("no %s within %s", what, within)
		}
	}
}

// Watched waits until the agent watches a target. It is used for inject.Env.
func (a *Agent) Watched(ctx context.Context, netns uint32, addr netip.AddrPort) error {
	ctx, cancel := context.WithTimeout(ctx, testenv.Within(10*time.Second))
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if ok, err := bpf.WatchedBy(a.Pins, netns, addr); ok || err != nil && ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// Diagnoses returns the completed Diagnoses, over all its runs.
func (a *Agent) Diagnoses() []*console.Diagnosis {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.causes)
}

// WaitDiagnosis returns the first completed Diagnosis for which of returns true. It fails the test
// t if there is none within the time.
func (a *Agent) WaitDiagnosis(t testing.TB, what string, within time.Duration, of func(*console.Diagnosis) bool) *console.Diagnosis {
	t.Helper()
	var found *console.Diagnosis
	a.WaitIn(t, "diagnosis of "+what, within, func([]journal.Entry) bool {
		all := a.Diagnoses()
		if i := slices.IndexFunc(all, of); i >= 0 {
			found = all[i]
		}
		return found != nil
	})
	return found
}

// WaitSources waits until every stem has reported that it works, in the entries from the n-th on.
func (a *Agent) WaitSources(n int) {
	a.t().Helper()
	a.Wait("sources", 60*time.Second, func(entries []journal.Entry) bool {
		up := map[string]bool{}
		for _, e := range entries[min(n, len(entries)):] {
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

// PID returns the process ID of the last run.
func (a *Agent) PID() int { return a.cmd.Process.Pid }

// Signal sends the running process a signal.
func (a *Agent) Signal(sig os.Signal) {
	a.t().Helper()
	if err := a.cmd.Process.Signal(sig); err != nil {
		a.t().Fatal(err)
	}
}

// Kill kills the agent with SIGKILL.
func (a *Agent) Kill() {
	if a.cmd != nil && a.cmd.ProcessState == nil {
		a.cmd.Process.Kill()
		a.cmd.Wait()
	}
}

// Stop stops the agent with SIGTERM, as systemd and kubelet do.
func (a *Agent) Stop() {
	a.t().Helper()
	a.Signal(syscall.SIGTERM)
	if err := a.cmd.Wait(); err != nil {
		a.t().Errorf("ended with %v", err)
	}
}

// End waits until the agent has ended for another reason, and returns how it ended.
func (a *Agent) End() error { return a.cmd.Wait() }

// Events returns the events of a kind in the entries, in order.
func Events(entries []journal.Entry, kind event.Kind) []*event.Event {
	var events []*event.Event
	for _, e := range entries {
		if e.Event != nil && e.Event.Kind == kind {
			events = append(events, e.Event)
		}
	}
	return events
}

// States returns the states that a rule's problems entered, in order, for the problems for which of
// returns true.
func States(entries []journal.Entry, rule string, of func(*problem.Problem) bool) []problem.State {
	var states []problem.State
	for _, e := range entries {
		for _, t := range e.Transitions {
			if t.Problem != nil && t.Problem.Rule == rule && of(t.Problem) {
				states = append(states, t.Problem.State)
			}
		}
	}
	return states
}

// Condition returns a condition as last reported. Its status is empty if it was not reported.
func Condition(entries []journal.Entry, name string) (last problem.Condition) {
	for _, e := range entries {
		for _, t := range e.Transitions {
			if t.Condition != nil && t.Condition.Type == name {
				last = *t.Condition
			}
		}
	}
	return last
}

// Log is the log of an agent. The zero value is ready for use.
type Log struct{ testenv.LogBuffer }

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
