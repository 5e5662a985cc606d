package inject_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/cmd/kernosis/inject"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

func TestFaults(t *testing.T) {
	testenv.OnlyInTestAll(t)
	seen := map[string]bool{}
	for _, f := range inject.Faults() {
		if f.Name == "" || f.Summary == "" || !strings.HasSuffix(f.Does, ".") || seen[f.Name] {
			t.Errorf("incomplete or doubled: %+v", f)
		}
		seen[f.Name] = true
		t.Run(f.Name, func(t *testing.T) {
			t.Parallel()
			dir := stateDir(t)
			targets := t.TempDir()
			var out bytes.Buffer
			count, want := 2, 2
			if f.DefaultCount == 0 {
				count, want = 0, 1
			}
			r, err := f.Run(t.Context(), lasting(f, 50*time.Millisecond, inject.Env{
				Out: &out, Count: count, StateDir: dir, TargetsDir: targets,
				WaitTarget: func(_ context.Context, netns uint32, addr netip.AddrPort) error {
					checkTargetFile(t, targets, f.Name, netns, addr)
					return errors.New("nobody here")
				},
			}))
			t.Logf("\n%s", &out)
			if refused := (*inject.Refused)(nil); errors.As(err, &refused) && f.Name == string(inject.DiskRead) {
				t.Skip(refused)
			} else if err != nil {
				t.Fatal(err)
			}
			if r.Fault != f.Name || r.Subject == "" || r.Count != want || len(r.Notes) == 0 || !r.Ended.After(r.Started) {
				t.Errorf("unexpected result: %+v", r)
			}
			if !strings.HasPrefix(out.String(), f.Name+": "+f.Does) {
				t.Error("doesn't begin with what it will do")
			}
			if files, _ := filepath.Glob(targets + "/*"); len(files) > 0 {
				t.Errorf("left in the targets' directory: %v", files)
			}
		})
	}
}

// lasting returns env with a duration, if the fault has one.
func lasting(f inject.Fault, d time.Duration, env inject.Env) inject.Env {
	if f.DefaultDuration > 0 {
		env.Duration = d
	}
	return env
}

func checkTargetFile(t *testing.T, dir, fault string, netns uint32, addr netip.AddrPort) {
	b, err := os.ReadFile(filepath.Join(dir, "inject-"+itoa(os.Getpid())+".yaml"))
	if err != nil {
		t.Error(err)
	}
	want := fmt.Sprintf("targets:\n- name: inject %s\n  address: %q\n  port: %d\n  netns: %d\n  targetNetns: ", fault, addr.Addr(), addr.Port(), netns)
	if !strings.HasPrefix(string(b), want) || !regexp.MustCompile(`targetNetns: [1-9]\d+\n  slowAfter: 950ms\n  slowOpeners: kn-prober\n$`).Match(b) {
		t.Errorf("target file:\n%swant:\n%s…", b, want)
	}
}

// A run that ends early still heals and removes the fault.
func TestInterrupt(t *testing.T) {
	for _, name := range []string{"oom", "hung-task", "hung-task-fs", "disk-error", "readonly-fs", "probe-timeout"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := stateDir(t)
			f, ok := inject.Find(name)
			if !ok {
				t.Fatal("no such fault")
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			out := &trigger{on: []string{"hangs", "failed", "refuses writes", "SIGKILL"}, do: cancel}
			_, err := f.Run(ctx, lasting(f, time.Minute, inject.Env{Out: out, StateDir: dir, TargetsDir: t.TempDir()}))
			if !errors.Is(err, context.Canceled) {
				t.Errorf("got %v, want context.Canceled", err)
			}
		})
	}
}

// A fault goes on beyond its count until it may end.
func TestUntil(t *testing.T) {
	dir := stateDir(t)
	f, ok := inject.Find("probe-refused")
	if !ok {
		t.Fatal("no such fault")
	}
	until := make(chan struct{})
	out := &trigger{on: []string{"probe 3 failed"}, do: func() { close(until) }}
	r, err := f.Run(t.Context(), inject.Env{Out: out, Count: 1, Until: until, StateDir: dir, TargetsDir: t.TempDir()})
	if err != nil || r.Count != 3 {
		t.Errorf("%d probes, %v", r.Count, err)
	}
	// It ends early with its context only.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out = &trigger{on: []string{"SIGKILL"}, do: cancel}
	if f, ok = inject.Find("oom"); !ok {
		t.Fatal("no such fault")
	}
	if _, err := f.Run(ctx, inject.Env{Out: out, Duration: time.Nanosecond, Until: make(chan struct{}), StateDir: dir}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
}

// trigger is a writer that calls do once one of the words is written.
type trigger struct {
	on []string
	do func()
}

func (w *trigger) Write(p []byte) (int, error) {
	for _, word := range w.on {
		if strings.Contains(string(p), word) {
			w.do()
		}
	}
	return len(p), nil
}

func TestDryRun(t *testing.T) {
	dir := stateDir(t)
	for _, f := range inject.Faults() {
		var out bytes.Buffer
		r, err := f.Run(t.Context(), inject.Env{Out: &out, StateDir: dir, DryRun: true})
		if err != nil || r.Count != 0 || !r.Started.IsZero() {
			t.Errorf("%s: %+v, %v", f.Name, r, err)
		}
		if got, want := out.String(), f.Name+": "+f.Does+"\n"; got != want {
			t.Errorf("%s printed %q, want %q", f.Name, got, want)
		}
	}
}

func TestRefused(t *testing.T) {
	needRoot(t)
	t.Setenv("PATH", "/nonexistent")
	for _, name := range []string{"disk-error", "readonly-fs", "hung-task-fs"} {
		f, _ := inject.Find(name)
		_, err := f.Run(t.Context(), inject.Env{StateDir: t.TempDir()})
		refused := (*inject.Refused)(nil)
		if !errors.As(err, &refused) || refused.Fault != name || !strings.Contains(refused.Reason, "package e2fsprogs") {
			t.Errorf("%s without mkfs.ext4: %v", name, err)
		}
	}
}

// A setting that a fault would ignore, or that is out of bounds, is refused before anything is done.
func TestWrongSettings(t *testing.T) {
	for _, c := range []struct {
		fault string
		env   inject.Env
		want  string
	}{
		{"oom", inject.Env{Count: -1}, "count -1"},
		{"oom", inject.Env{Count: inject.MaxCount + 1}, "count 1001"},
		{"oom", inject.Env{Duration: -1}, "duration -1ns"},
		{"oom", inject.Env{Duration: inject.MaxDuration + 1}, "duration 10m"},
		{"oom", inject.Env{Memory: inject.MaxMemory + 1}, "memory 1073741825, want at most 1073741824 bytes (1 GiB)"},
		{"hung-task", inject.Env{Count: 1}, "the fault has no count; these have: oom, disk-error, "},
		{"hung-task-fs", inject.Env{Count: 2}, "has no count"},
		{"readonly-fs", inject.Env{Count: 2}, "has no count"},
		{"probe-refused", inject.Env{Duration: time.Second}, "has no duration; these have: oom, hung-task, hung-task-fs, disk-error, disk-error-read, disk-full, readonly-fs"},
		{"accept-queue-full", inject.Env{Duration: time.Second}, "has no duration"},
		{"disk-error", inject.Env{Memory: 1 << 20}, "has no memory; these have: oom"},
		{"probe-slow", inject.Env{Memory: 1 << 20}, "has no memory"},
	} {
		f, ok := inject.Find(c.fault)
		if !ok {
			t.Fatalf("no fault %s", c.fault)
		}
		c.env.DryRun, c.env.StateDir = true, t.TempDir()
		if _, err := f.Run(t.Context(), c.env); err == nil || !strings.HasPrefix(err.Error(), "inject "+c.fault+": ") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.fault, err, c.want)
		}
	}
}
