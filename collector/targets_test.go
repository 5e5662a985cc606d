package collector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/bpf"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

func TestParseTargets(t *testing.T) {
	got, err := parseTargets("t.yaml", []byte(`
targets:
- name: web
  address: 10.9.0.2
  port: 80
  netns: 7
  targetNetns: 8
- address: ::ffff:10.9.0.3
- name: "any\u202e"
  port: 443
  slowAfter: 950ms
  slowOpeners: kubelet,k3s-agent
`))
	want := []Target{
		{Name: "web", Address: netip.MustParseAddr("10.9.0.2"), Port: 80, NetNS: 7, TargetNetNS: 8},
		{Address: netip.MustParseAddr("10.9.0.3")},
		{Name: `any\u202e`, Port: 443, SlowAfter: 950 * time.Millisecond, SlowOpeners: "kubelet,k3s-agent"},
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %+v (%v)", got, err)
	}
	for _, empty := range []string{"", "# nothing\n", "targets: []\n", "targets:\n"} {
		if got, err := parseTargets("t.yaml", []byte(empty)); err != nil || len(got) != 0 {
			t.Errorf("%q: %+v (%v)", empty, got, err)
		}
	}
}

func TestParseTargetsErrors(t *testing.T) {
	for text, want := range map[string]string{
		"targets:\n- name: x\n  port: 80\n  addr: 10.0.0.1\n": "addr",
		"target: []\n": "target",
		"targets:\n- port: 80\n- address: 10.0.0.300\n":   "t.yaml:3: address",
		"targets:\n- port: 80\n\n- port: 70000\n":         "t.yaml:4:",
		"targets:\n- name: nothing\n":                     "t.yaml:2: a target needs",
		"targets:\n- address: 0.0.0.0\n":                  "t.yaml:2: address 0.0.0.0: to match any",
		"targets:\n- address: fe80::1%eth0\n":             "zones",
		"targets:\n- port: 1\n  netns: 4294967295\n":      "no such inode",
		"targets:\n- port: 1\n---\ntargets:\n- port: 2\n": "more than one document",
		"targets:\n- {port: 1, slowAfter: soon}\n":        "slowAfter",
		"targets:\n- {port: 1, slowAfter: -1s}\n":         "slow after -1s",
		"targets: [":            "t.yaml",
		"targets: {port: 80}\n": "t.yaml",
	} {
		if _, err := parseTargets("t.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "t.yaml") {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// watched returns the keys and IDs that the kernel would be given.
func watched(t *testing.T, targets *Targets) map[bpf.SockTargetKey]uint32 {
	t.Helper()
	targets.changed = true
	if err := targets.reconcile(func(bpf.SockTargets) error { return nil }); err != nil {
		t.Fatal(err)
	}
	return targets.byKey
}

func TestTargetsSet(t *testing.T) {
	targets := newTargets()
	web := Target{Name: "web", Address: netip.MustParseAddr("10.0.0.1"), Port: 80}
	other := Target{Name: "the same", Address: netip.MustParseAddr("::ffff:10.0.0.1"), Port: 80}
	if err := errors.Join(targets.Set("b", []Target{other}), targets.Set("a", []Target{web, {Port: 443}})); err != nil {
		t.Fatal(err)
	}
	keys := watched(t, targets)
	key := web.key()
	if len(keys) != 2 || keys[key] == 0 {
		t.Fatalf("keys %v", keys)
	}
	if got, ok := targets.byRecord(keys[key]); !ok || got != web {
		t.Errorf("target %+v", got)
	}
	before := keys[key]
	if err := targets.Set("a", nil); err != nil {
		t.Fatal(err)
	}
	if keys = watched(t, targets); len(keys) != 1 || keys[key] != before {
		t.Errorf("after a source went: %v, want number %d", keys, before)
	}
	if err := targets.Set("b", []Target{{Name: "nothing"}}); !errors.Is(err, errNoTarget) {
		t.Errorf("error %v", err)
	}
	if keys = watched(t, targets); len(keys) != 1 {
		t.Errorf("a refused set changed it: %v", keys)
	}
}

// manyTargets returns the maximum number of targets.
func manyTargets() []Target {
	many := make([]Target, maxTargets)
	for i := range many {
		many[i] = Target{Address: netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), Port: 80}
	}
	return many
}

// The kernel's maps have room for all targets and the canary.
func TestTargetsFitTheMaps(t *testing.T) {
	spec, err := bpf.LoadSockfail()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]uint32{
		bpf.SockfailMapTargets: 2 * (maxTargets + 1), bpf.SockfailMapOutcomes: maxTargets + 1, bpf.SockfailMapLabels: maxTargets + 1,
	} {
		if room := spec.Maps[name].MaxEntries; room != want {
			t.Errorf("map %s has room for %d, want %d", name, room, want)
		}
	}
}

func TestTargetsAreBounded(t *testing.T) {
	targets := newTargets()
	many := manyTargets()
	if err := targets.Set("a", many); err != nil {
		t.Fatal(err)
	}
	if err := targets.Set("b", many[:1]); err == nil || !strings.Contains(err.Error(), "too many") {
		t.Errorf("one more: %v", err)
	}
	ids := map[uint32]bool{}
	for _, id := range watched(t, targets) {
		ids[id] = true
	}
	if len(ids) != maxTargets {
		t.Errorf("%d distinct numbers", len(ids))
	}
	if err := targets.Set("a", many[:maxTargets-1]); err != nil {
		t.Fatal(err)
	}
	if err := targets.Set("b", many[:1]); err != nil {
		t.Errorf("room again: %v", err)
	}
}

// A watch that failed is retried.
func TestTargetsReconcileAgain(t *testing.T) {
	targets := newTargets()
	if err := targets.Set("a", []Target{{Port: 80}}); err != nil {
		t.Fatal(err)
	}
	calls, broken := 0, errors.New("broken")
	watch := func(bpf.SockTargets) error {
		if calls++; calls == 1 {
			return broken
		}
		return nil
	}
	if err := targets.reconcile(watch); !errors.Is(err, broken) {
		t.Fatal(err)
	}
	for range 2 {
		if err := targets.reconcile(watch); err != nil {
			t.Fatal(err)
		}
	}
	if calls != 2 {
		t.Errorf("%d calls, want 2", calls)
	}
}

func TestTargetDir(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "deep", "targets.d")
	targets := newTargets()
	var log testenv.LogBuffer
	d := &targetDir{path: dir, targets: targets, log: slog.New(slog.NewTextHandler(&log, nil))}
	ctx, stop := context.WithCancel(t.Context())
	var g sync.WaitGroup
	g.Go(func() { _ = d.run(ctx) })
	defer g.Wait()
	defer stop()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	wait := func(what string, ok func() bool) {
		t.Helper()
		testenv.UntilShown(t, what, 3*time.Second, func() (bool, string) {
			return ok(), fmt.Sprintf("%d targets, log %s", targets.len(), &log)
		})
	}
	has := func(n int) func() bool { return func() bool { return targets.len() == n } }

	wait("folder made", func() bool { _, err := os.Stat(dir); return err == nil })
	write("a.yaml", "targets:\n- port: 80\n- port: 81\n")
	write("b.yml", "targets:\n- port: 82\n")
	write("c.yaml.tmp", "targets:\n- port: 83\n")
	write(".d.yaml", "targets:\n- port: 84\n")
	wait("two files", has(3))

	write("a.yaml", "targets:\n- prot: 80\n")
	wait("bad file reported", func() bool { return strings.Contains(log.String(), "prot") })
	if targets.len() != 3 || !strings.Contains(log.String(), "previous targets") {
		t.Errorf("%d targets after a bad file, log %s", targets.len(), &log)
	}
	write("a.yaml", "targets:\n- port: 80\n")
	wait("mended", has(2))
	if err := unix.Mkfifo(filepath.Join(dir, "pipe.yaml"), 0o600); err != nil {
		t.Fatal(err)
	}
	wait("a pipe refused", func() bool { return strings.Contains(log.String(), "regular") })
	if err := os.Rename(filepath.Join(dir, "b.yml"), filepath.Join(dir, "b.off")); err != nil {
		t.Fatal(err)
	}
	wait("one file gone", has(1))
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	wait("folder gone", has(0))
	wait("folder back", func() bool { _, err := os.Stat(dir); return err == nil })
	write("e.yaml", "targets:\n- port: 80\n")
	wait("watched again", has(1))
}

// Targets of an earlier run are kept until the folder was read.
func TestTargetDirIsAwaited(t *testing.T) {
	dir := t.TempDir()
	targets := newTargets(dir)
	targets.resume(bpf.SockTargets{Keys: map[bpf.SockTargetKey]bpf.SockTarget{(&Target{Port: 9}).key(): {ID: 1}}})
	if !targets.waiting() {
		t.Error("not waiting for the folder")
	}
	file := filepath.Join(dir, "a.yaml")
	if err := os.WriteFile(file, []byte("targets: [{port: 80}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	d := &targetDir{path: dir, targets: targets, log: slog.New(slog.DiscardHandler)}
	d.read()
	if got := targets.sources[file]; len(got) != 1 || got[0].Port != 80 || targets.waiting() {
		t.Errorf("targets %+v; waiting for the folder: %v", got, targets.waiting())
	}
}

func FuzzParseTargets(f *testing.F) {
	f.Add([]byte("targets:\n- name: x\n  address: 10.0.0.1\n  port: 80\n"))
	f.Add([]byte("targets: [{port: 1}]\n---\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := parseTargets("t.yaml", data)
		if err != nil {
			return
		}
		for _, target := range got {
			if again, err := target.check(); err != nil || fmt.Sprint(again) != fmt.Sprint(target) {
				t.Errorf("accepted %+v, then %+v (%v)", target, again, err)
			}
		}
	})
}
