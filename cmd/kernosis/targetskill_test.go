package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/reporter/journal"
	"github.com/kernosis/kernosis/vmtest/agenttest"
	"github.com/kernosis/kernosis/vmtest/netlab"
)

// Failures while the agent is dead are reported by the next one, with the target's name.
func TestKillKeepsTargets(t *testing.T) {
	prober, _ := netlab.Pair(t)
	a := newAgent(t)
	at := netip.MustParseAddrPort("10.97.31.2:81")
	if err := os.MkdirAll(a.Targets, 0o755); err != nil {
		t.Fatal(err)
	}
	file := fmt.Sprintf("targets:\n- {name: the probe, address: %s, port: %d, netns: %d}\n", at.Addr(), at.Port(), prober.Inode)
	if err := os.WriteFile(filepath.Join(a.Targets, "probe.yaml"), []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	refuse := func() {
		t.Helper()
		if err := prober.Probe(at.String(), time.Second, ""); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatal(err)
		}
	}
	a.Start()
	if err := a.Watched(t.Context(), prober.Inode, at); err != nil {
		t.Fatal(err)
	}
	refuse()
	reported := func(n int) {
		t.Helper()
		entries := a.Wait(fmt.Sprintf("%d failures", n), 30*time.Second, func(entries []journal.Entry) bool {
			return len(agenttest.Events(entries, event.SockFail)) >= n
		})
		for _, ev := range agenttest.Events(entries, event.SockFail) {
			if ev.SockFail.Target != "the probe" {
				t.Errorf("failure of %q", ev.SockFail.Target)
			}
		}
	}
	reported(1)
	for round := range 3 {
		a.Kill()
		refuse()
		a.Start()
		refuse()
		reported(3 + 2*round)
	}
}
