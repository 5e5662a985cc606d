package collector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/kernosis/kernosis/bpf"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/vmtest/netlab"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// collected is running Sources, and what they reported about targets.
type collected struct {
	*Sources
	mu       sync.Mutex
	reported []string // kind and target
	end      func()
}

func collect(t *testing.T, cfg Config) *collected {
	t.Helper()
	s, err := Open(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	c := &collected{Sources: s}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- s.Run(ctx, func(ev *event.Event) {
			if ev.Kind == event.Canary {
				s.CanarySeen(ev.CanaryRun)
			}
			if ev.SockFail != nil {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.reported = append(c.reported, string(ev.Kind)+" "+ev.SockFail.Target)
			}
		}, func() {})
	}()
	c.end = sync.OnceFunc(func() {
		cancel()
		if err := errors.Join(<-ended, s.Close(false)); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(c.end)
	return c
}

func (c *collected) events() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.reported...)
}

// Between an agent's end and the first list of its successor's sources, targets stay watched, and
// failures in that time still have their names.
func TestTargetsOutliveTheAgent(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to load programs")
	}
	prober, _ := netlab.Pair(t)
	pins := filepath.Join("/sys/fs/bpf", fmt.Sprintf("kernosis-test-%d-%d", os.Getpid(), time.Now().UnixNano()))
	t.Cleanup(func() { _ = os.RemoveAll(pins) })
	cfg := Config{HostRoot: "/", PinRoot: pins, TargetSources: []string{"probes"}}
	at := netip.MustParseAddrPort("10.97.31.2:81")
	watched := func(c *collected, want bool) {
		t.Helper()
		testenv.Until(t, fmt.Sprintf("watched: %t", want), 10*time.Second, func() bool {
			is, err := bpf.WatchedBy(pins, prober.Inode, at)
			return err == nil && is == want
		})
	}
	refuse := func() {
		t.Helper()
		if err := prober.Probe(at.String(), time.Second, ""); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatal(err)
		}
	}
	reported := func(c *collected, n int) {
		t.Helper()
		testenv.UntilShown(t, fmt.Sprintf("%d failures of the probe", n), 15*time.Second, func() (bool, string) {
			got := c.events()
			return len(got) >= n, fmt.Sprint(got)
		})
		for _, ev := range c.events() {
			if ev != string(event.SockFail)+" shop/web:81" {
				t.Errorf("reported %q", ev)
			}
		}
	}
	target := Target{Name: "shop/web:81", Address: at.Addr(), Port: at.Port(), NetNS: prober.Inode, SlowAfter: time.Second, SlowOpeners: "kubelet"}

	first := collect(t, cfg)
	if err := first.SetTargets("probes", []Target{target}); err != nil {
		t.Fatal(err)
	}
	watched(first, true)
	first.end()
	refuse() // while no agent runs

	second := collect(t, cfg)
	reported(second, 1)
	refuse() // before it knows any pod
	reported(second, 2)
	second.end()
	refuse()

	// The first list arrives; it has the watched target and a new one.
	third := collect(t, cfg)
	other := Target{Name: "shop/db:82", Address: at.Addr(), Port: 82, NetNS: prober.Inode}
	if err := third.SetTargets("probes", []Target{target, other}); err != nil {
		t.Fatal(err)
	}
	reported(third, 1)
	testenv.Until(t, "outcomes of all three runs", 10*time.Second, func() bool {
		got, err := third.Outcomes("probes")
		return err == nil && len(got) == 2 && got[0].Failed == 3
	})
	third.end()

	// Now a first list without the target.
	fourth := collect(t, cfg)
	watched(fourth, true)
	if err := fourth.SetTargets("probes", nil); err != nil {
		t.Fatal(err)
	}
	watched(fourth, false)
}

// A stem that no longer sees real connections fails the check, although its program still runs when
// asked to.
func TestBlindSockFailFailsTheCheck(t *testing.T) {
	testenv.OnlyInTestAll(t)
	if os.Geteuid() != 0 {
		t.Skip("needs root to load programs")
	}
	prober, _ := netlab.Pair(t)
	pins := filepath.Join("/sys/fs/bpf", fmt.Sprintf("kernosis-test-%d-%d", os.Getpid(), time.Now().UnixNano()))
	t.Cleanup(func() { _ = os.RemoveAll(pins) })
	c := collect(t, Config{HostRoot: "/", PinRoot: pins})
	at := netip.MustParseAddrPort("10.97.31.2:81")
	if err := c.SetTargets("probes", []Target{{Name: "shop/web:81", Address: at.Addr(), Port: at.Port(), NetNS: prober.Inode}}); err != nil {
		t.Fatal(err)
	}
	testenv.Until(t, "watched", 10*time.Second, func() bool {
		is, err := bpf.WatchedBy(pins, prober.Inode, at)
		return err == nil && is
	})
	healthy := func(want bool) {
		t.Helper()
		testenv.UntilShown(t, fmt.Sprintf("healthy: %t", want), 30*time.Second, func() (bool, string) {
			err := c.Check(time.Now())
			return (err == nil) == want, fmt.Sprint(err)
		})
	}
	healthy(true)
	// The programs stay attached, but no longer match any target.
	found, err := filepath.Glob(filepath.Join(pins, bpf.StemSockFail, "*", "map_config"))
	if err != nil || len(found) != 1 {
		t.Fatal(found, err)
	}
	config, err := ebpf.LoadPinnedMap(found[0], nil)
	if err != nil {
		t.Fatal(err)
	}
	defer config.Close()
	var before bpf.SockConfig
	if err := errors.Join(config.Lookup(uint32(0), &before), config.Put(uint32(0), &bpf.SockConfig{})); err != nil {
		t.Fatal(err)
	}
	healthy(false)
	if err := config.Put(uint32(0), &before); err != nil {
		t.Fatal(err)
	}
	healthy(true)
	if got := c.events(); len(got) != 0 {
		t.Errorf("reported %v: the canaries are no faults", got)
	}
}
