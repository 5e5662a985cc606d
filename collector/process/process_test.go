package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kernosis/kernosis/vmtest/testenv"
)

func TestTimeLimitKillsTheWholeGroup(t *testing.T) {
	const (
		soon  = 300 * time.Millisecond // else there are thousands of processes
		later = time.Second            // when the shell has certainly started
	)
	for _, c := range []struct {
		name, body string
		limit      time.Duration
	}{
		{"hang", "sleep 1000", later},
		{"hang ignoring SIGTERM", "trap '' TERM INT HUP\nwhile :; do sleep 1000; done", later},
		{"grandchild holds pipe", "sleep 1000 & sleep 1000 | cat", later},
		{"forks for ever", "while :; do sleep 1000 & done", soon},
		{"fork tree", "f() { [ $1 -gt 0 ] && { f $(($1-1)) & f $(($1-1)) & }; sleep 1000; }\nf 5", soon},
		{"each child forks again", "f() { n=$1; while [ $n -gt 0 ]; do n=$((n-1)); ( f $n ) & done; sleep 1000; }\nf 6", soon},
	} {
		t.Run(c.name, func(t *testing.T) {
			mark := testenv.MarkProcesses(t)
			p := Program{Path: testenv.Script(t, "echo begun\n"+c.body), Timeout: c.limit}
			o := p.Run(t.Context())
			if !errors.Is(o.Err, ErrTimeout) || errors.Is(o.Err, ErrStuck) {
				t.Errorf("error %v, want %v", o.Err, ErrTimeout)
			}
			if o.Duration < p.Timeout || o.Duration > patience {
				t.Errorf("took %v", o.Duration)
			}
			if c.limit == later && string(o.Stdout) != "begun\n" {
				t.Errorf("output %q", o.Stdout)
			}
			testenv.Until(t, "end of all its processes", patience, func() bool { return mark.Count() == 0 })
		})
	}
}

func TestGroupIsKilledAfterTheProgramsOwnEnd(t *testing.T) {
	mark := testenv.MarkProcesses(t)
	p := Program{Path: testenv.Script(t, "sleep 1000 &\necho done\nexit 1"), Timeout: patience}
	o := p.Run(t.Context())
	if o.Err != nil || o.State.ExitCode() != 1 || string(o.Stdout) != "done\n" {
		t.Errorf("%v %v %q", o.Err, o.State, o.Stdout)
	}
	if o.Duration > patience/2 {
		t.Errorf("a grandchild that holds the pipe open held it up: %v", o.Duration)
	}
	testenv.Until(t, "end of the grandchild", patience, func() bool { return mark.Count() == 0 })
}

func TestOutputOfAChildThatEndsLaterIsWaitedFor(t *testing.T) {
	// The child writes once it sees that its parent has ended.
	p := Program{Path: testenv.Script(t, "(while kill -0 $$ 2>/dev/null && ! grep -q '^State:.Z' /proc/$$/status; do :; done; echo late) &\necho early"), Timeout: patience}
	if o := p.Run(t.Context()); string(o.Stdout) != "early\nlate\n" {
		t.Errorf("output %q", o.Stdout)
	}
}

func TestProcessThatLeftTheGroupHoldsUpNothing(t *testing.T) {
	mark := testenv.MarkProcesses(t)
	path, args := self(t, "escape")
	p := Program{Path: path, Args: args, Timeout: patience}
	o := p.Run(t.Context())
	if o.Err != nil || o.State.ExitCode() != 0 || string(o.Stdout) != "escaped\n" {
		t.Errorf("%v %v %q", o.Err, o.State, o.Stdout)
	}
	// Only a control group prevents this; see TestControlGroup.
	if n := mark.Count(); n != 1 {
		t.Errorf("%d processes have escaped, want 1", n)
	}
	mark.Kill()
}

func TestFloodIsCountedAndTakesNoMemory(t *testing.T) {
	path, args := self(t, "flood")
	p := Program{Path: path, Args: args, Timeout: patience}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	o := p.Run(t.Context())
	runtime.ReadMemStats(&after)
	if o.Err != nil || o.State.ExitCode() != 1 {
		t.Fatalf("%v %v", o.Err, o.State)
	}
	if len(o.Stdout) != DefaultKeep || o.Dropped != 1<<30-DefaultKeep {
		t.Errorf("%d bytes kept, %d dropped", len(o.Stdout), o.Dropped)
	}
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 1<<20 {
		t.Errorf("%d bytes allocated", grown)
	}
	t.Logf("1 GiB in %v, %d bytes allocated", o.Duration, after.TotalAlloc-before.TotalAlloc)
}

func TestContextEndsTheProgram(t *testing.T) {
	mark := testenv.MarkProcesses(t)
	ctx, cancel := context.WithCancel(t.Context())
	began := filepath.Join(t.TempDir(), "began")
	p := Program{Path: testenv.Script(t, "touch "+began+"\nsleep 1000"), Timeout: patience}
	done := make(chan Outcome)
	go func() { done <- p.Run(ctx) }()
	testenv.Until(t, "start", patience, func() bool { _, err := os.Stat(began); return err == nil })
	cancel()
	if o := <-done; !errors.Is(o.Err, context.Canceled) {
		t.Errorf("error %v", o.Err)
	}
	testenv.Until(t, "end of its processes", patience, func() bool { return mark.Count() == 0 })
}

func BenchmarkRun(b *testing.B) {
	p := Program{Path: "/bin/true", Timeout: patience}
	b.ReportAllocs()
	for b.Loop() {
		if o := p.Run(b.Context()); o.Err != nil {
			b.Fatal(o.Err)
		}
	}
}

func TestStreamsAreKeptTogetherAndApart(t *testing.T) {
	path := testenv.Script(t, "i=0; while [ $i -lt 500 ]; do i=$((i+1)); echo out $i; echo err $i >&2; done")
	var stdout, stderr strings.Builder
	for i := 1; i <= 500; i++ {
		fmt.Fprintf(&stdout, "out %d\n", i)
		fmt.Fprintf(&stderr, "err %d\n", i)
	}
	all := stdout.Len() + stderr.Len()
	p := Program{Path: path, Timeout: patience, Keep: 10, KeepMerged: 1 << 20}
	o := p.Run(t.Context())
	if o.Err != nil || string(o.Stdout) != stdout.String()[:10] || o.Dropped != uint64(stdout.Len()-10) || string(o.Stderr) != stderr.String()[:10] {
		t.Errorf("%v %q %q", o.Err, o.Stdout, o.Stderr)
	}
	if string(o.StderrEnd) != stderr.String()[stderr.Len()-maxTail:] {
		t.Errorf("%q", o.StderrEnd)
	}
	// The order of two writes to different streams is undefined.
	var outs, errs strings.Builder
	for line := range strings.Lines(string(o.Merged)) {
		if strings.HasPrefix(line, "out") {
			outs.WriteString(line)
		} else {
			errs.WriteString(line)
		}
	}
	if outs.String() != stdout.String() || errs.String() != stderr.String() || o.MergedDropped != 0 {
		t.Errorf("%q", o.Merged)
	}
	p.KeepMerged = 100
	if o = p.Run(t.Context()); len(o.Merged) != 100 || o.MergedDropped != uint64(all-100) {
		t.Errorf("%q, %d dropped", o.Merged, o.MergedDropped)
	}
}

func TestConfinedProgram(t *testing.T) {
	const look = "grep -E '^(NoNewPrivs|CapEff|CapPrm|CapAmb|Uid|Groups):' /proc/self/status | tr -s ' \\t' ' '; pwd; env | sort | tr '\\n' ' '; cat <&3"
	file, err := os.Open(testenv.Script(t, "content"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	path := testenv.Script(t, look)
	p := Program{Path: "/bin/sh", Args: []string{path}, Timeout: patience, Confined: true, Env: []string{"A=b"}, Dir: "/", Files: []*os.File{file}}
	if os.Geteuid() == 0 {
		p.User = &syscall.Credential{Uid: 65534, Gid: 65533}
		for dir := filepath.Dir(path); len(dir) > len(os.TempDir()); dir = filepath.Dir(dir) {
			if err := os.Chmod(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	o := p.Run(t.Context())
	text := string(o.Stdout)
	for _, want := range []string{"NoNewPrivs: 1\n", "CapAmb: 0000000000000000\n", "\n/\n", "A=b PWD=/ ", "content"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %q, %q, %v", want, text, o.Stderr, o.Err)
		}
	}
	if os.Geteuid() == 0 {
		for _, want := range []string{"Uid: 65534 65534 65534 65534\n", "CapEff: 0000000000000000\n", "CapPrm: 0000000000000000\n", "Groups: \n"} {
			if !strings.Contains(text, want) {
				t.Errorf("no %q in %q", want, text)
			}
		}
	}
	// Other programs are not affected.
	p = Program{Path: "/bin/grep", Args: []string{"NoNewPrivs", "/proc/self/status"}, Timeout: patience}
	for range 20 {
		if o := p.Run(t.Context()); string(o.Stdout) != "NoNewPrivs:\t0\n" {
			t.Fatalf("%q", o.Stdout)
		}
	}
}
