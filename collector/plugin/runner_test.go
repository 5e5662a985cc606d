package plugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/kernosis/kernosis/collector/process"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// run runs a Runner until stop is called.
func run(t *testing.T, cfg Config, results chan<- Result) (stop func()) {
	t.Helper()
	r, err := New(cfg, nil, func(r Result) {
		select {
		case results <- r:
		default: // nobody waits any more
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Run: %v", err)
			}
		case <-time.After(testenv.Within(patience)):
			t.Error("Run does not end")
		}
	})
	t.Cleanup(stop)
	return stop
}

// first returns the first result of one check.
func first(t *testing.T, cfg Config) Result {
	t.Helper()
	results := make(chan Result, 1)
	cfg.Name, cfg.Spread = "t", 1
	cfg.Checks[0].Name = "c"
	stop := run(t, cfg, results)
	defer stop()
	select {
	case r := <-results:
		return r
	case <-time.After(testenv.Within(patience)):
		t.Fatal("no result")
		return Result{}
	}
}

func TestResults(t *testing.T) {
	for _, c := range []struct {
		name, body string
		want       Result
	}{
		{"ok", "echo all is well", Result{Status: OK, Message: "all is well"}},
		{"ok says nothing", "exit 0", Result{Status: OK}},
		{"problem", "echo NTP is down; exit 1", Result{Status: Problem, Message: "NTP is down"}},
		{"unknown", "echo no idea; exit 2", Result{Status: Unknown, Message: "no idea"}},
		{"other code", "exit 77", Result{Status: Unknown, Message: "ended with exit code 77"}},
		{"command not found", "no-such-command 2>/dev/null", Result{Status: Unknown, Message: "ended with exit code 127"}},
		{"signal", "kill -SEGV $$", Result{Status: Unknown, Message: "ended by SIGSEGV"}},
		{"signal after text", "echo text; kill -KILL $$", Result{Status: Unknown, Message: "text"}},
		{"trimmed, one line", `printf '\n  two\n\n lines\tand tab  \r\n\n'`, Result{Status: OK, Message: "two  lines and tab"}},
		{"control characters", `printf 'a\033[31mred\007\000b'`, Result{Status: OK, Message: `a\x1b[31mred\a\x00b`}},
		{"invalid UTF-8", `printf 'a\377\303b\303\244'`, Result{Status: OK, Message: `a\xff\xc3bä`}},
		{"bidirectional", `printf 'a\342\200\256b'`, Result{Status: OK, Message: `a\u202eb`}},
		{"long", `printf '%0100d' 7; exit 1`, Result{Status: Problem, Message: strings.Repeat("0", 80), Truncated: 20}},
		{"stderr", "echo debug >&2; echo fine", Result{Status: OK, Message: "fine", Stderr: "debug"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := first(t, Config{Checks: []Check{{Path: testenv.Script(t, c.body)}}})
			if got.Duration <= 0 {
				t.Errorf("duration %v", got.Duration)
			}
			c.want.Check, got.Duration = "c", 0
			if d := cmp.Diff(c.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestArguments(t *testing.T) {
	check := Check{Path: testenv.Script(t, `printf '<%s>' "$@"`), Args: []string{"--a=b c", "$HOME", ""}}
	if got := first(t, Config{Checks: []Check{check}}); got.Message != "<--a=b c><$HOME><>" {
		t.Errorf("message %q", got.Message)
	}
}

func TestTimeLimit(t *testing.T) {
	// The timeout starts at the fork: the shell has to start within it.
	check := Check{Path: testenv.Script(t, "echo so far; sleep 1000"), Timeout: testenv.Within(2 * time.Second)}
	got := first(t, Config{Timeout: patience, MaxOutputLength: 400, Checks: []Check{check}})
	want := fmt.Sprintf("Timeout when running plugin %q: state - signal: killed. output - \"so far\"", check.Path)
	if got.Status != Unknown || !errors.Is(got.Err, process.ErrTimeout) || got.Message != want {
		t.Errorf("got %+v\nwant message %s", got, want)
	}
}

func TestMessageIsBoundedInBytes(t *testing.T) {
	for limit := 1; limit < 12; limit++ {
		text, cut := message([]byte("äöü\x00ab"), limit)
		if len(text) > limit || !utf8.ValidString(text) || len(text)+int(cut) != len(`äöü\x00ab`) {
			t.Errorf("limit %d: %q, cut %d", limit, text, cut)
		}
	}
}

// TestPathChangesWhileRunning replaces a program by files that can't be run.
func TestPathChangesWhileRunning(t *testing.T) {
	path := testenv.Script(t, "echo here")
	results := make(chan Result, 1000)
	run(t, Config{
		Name: "t", Spread: 1, InvokeInterval: 10 * time.Millisecond, MaxOutputLength: 300,
		Checks: []Check{{Name: "c", Path: path}},
	}, results)
	want := func(ok func(Result) bool) {
		t.Helper()
		deadline := time.After(testenv.Within(patience))
		for {
			select {
			case r := <-results:
				if ok(r) {
					return
				}
			case <-deadline:
				t.Fatal("no such result")
			}
		}
	}
	put := func(content string, mode os.FileMode) {
		t.Helper()
		_ = os.RemoveAll(path)
		testenv.WriteProgram(t, path, content)
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	here := func(r Result) bool { return r.Status == OK && r.Message == "here" }
	want(here)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	want(func(r Result) bool {
		return r.Status == Unknown && errors.Is(r.Err, fs.ErrNotExist) && strings.Contains(r.Message, "no such file")
	})
	put("#!/bin/sh\necho here", 0o755)
	want(here)
	put("#!/bin/sh\necho here", 0o644)
	want(func(r Result) bool { return r.Status == Unknown && errors.Is(r.Err, fs.ErrPermission) })
	put("neither script nor binary", 0o755)
	want(func(r Result) bool { return r.Status == Unknown && errors.Is(r.Err, syscall.ENOEXEC) })
	_ = os.Remove(path)
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	want(func(r Result) bool { return r.Status == Unknown && errors.Is(r.Err, fs.ErrPermission) })
	put("#!/bin/sh\necho here", 0o755)
	want(here)
}

// TestConcurrency uses a file to count how many checks run at the same time.
func TestConcurrency(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	cfg := Config{Name: "t", Spread: 1, InvokeInterval: 30 * time.Millisecond, Concurrency: 2}
	for i := range 6 {
		name := fmt.Sprint("c", i)
		cfg.Checks = append(cfg.Checks, Check{
			Name: name, Path: testenv.Script(t, `echo "+ $1" >>`+log+"\nsleep 0.05\n"+`echo "- $1" >>`+log), Args: []string{name},
		})
	}
	results := make(chan Result, 1000)
	stop := run(t, cfg, results)
	seen := map[string]int{}
	for range 30 {
		r := <-results
		seen[r.Check]++
		if r.Status != OK {
			t.Errorf("%+v", r)
		}
	}
	stop()
	if len(seen) != len(cfg.Checks) {
		t.Errorf("only %v were run", seen)
	}
	b, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	at, most, same := 0, 0, map[string]int{}
	for line := range strings.Lines(string(b)) {
		step, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		if step == "+" {
			at++
			same[name]++
		} else {
			at--
			same[name]--
		}
		most = max(most, at)
		if same[name] > 1 {
			t.Errorf("%s overlaps itself", name)
		}
	}
	if most != 2 {
		t.Errorf("%d ran at a time, want 2", most)
	}
}

func TestFirstRunsAreSpread(t *testing.T) {
	cfg := Config{Name: "t", InvokeInterval: time.Minute}
	path := testenv.Script(t, "exit 0")
	for i := range 4 {
		cfg.Checks = append(cfg.Checks, Check{Name: strconv.Itoa(i), Path: path})
	}
	cfg.Checks[3].InvokeInterval = 4 * time.Second
	r, err := New(cfg, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	bounds := [][2]int64{{0, 2500}, {2500, 5000}, {5000, 7500}, {3000, 4000}} // ms
	different := map[time.Duration]bool{}
	for range 100 {
		for i, b := range bounds {
			got := r.first(i)
			different[got] = true
			if ms := got.Milliseconds(); ms < b[0] || ms > b[1] {
				t.Fatalf("check %d begins after %v, want %v ms", i, got, b)
			}
		}
	}
	if len(different) < 300 {
		t.Errorf("only %d different times", len(different))
	}
}

func TestMissedRunsAreLeftOut(t *testing.T) {
	last := time.Now()
	for _, c := range [][3]time.Duration{
		{10, 0, 10}, {10, 9, 10}, {10, 10, 20}, {10, 35, 40}, {10, -5, 10},
	} {
		if got := following(last, c[0], last.Add(c[1])).Sub(last); got != c[2] {
			t.Errorf("interval %d, %d after: next at %d, want %d", c[0], c[1], got, c[2])
		}
	}
}

func TestHandleIsCalledByOneAtATime(t *testing.T) {
	path := testenv.Script(t, "exit 0")
	cfg := Config{Name: "t", Spread: 1, InvokeInterval: time.Millisecond}
	for i := range 3 {
		cfg.Checks = append(cfg.Checks, Check{Name: strconv.Itoa(i), Path: path})
	}
	n := 0 // the race detector reports concurrent calls
	ctx, cancel := context.WithCancel(t.Context())
	r, err := New(cfg, nil, func(Result) {
		if n++; n == 20 {
			cancel()
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Run(ctx); err != nil {
		t.Fatal(err)
	}
}
