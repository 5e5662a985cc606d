package inject_test

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kernosis/kernosis/cmd/kernosis/inject"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

func TestProbe(t *testing.T) {
	needRoot(t)
	host := netnsInode(t, "self")
	links, _ := os.ReadFile("/proc/net/dev")
	linkCount := strings.Count(string(links), "\n")
	t.Run("kinds", func(t *testing.T) {
		for _, tc := range []struct {
			kind      inject.ProbeKind
			wantError string
			atLeast   time.Duration
		}{
			{inject.ProbeRefused, "connection refused", 0},
			{inject.ProbeTimeout, "Client.Timeout exceeded", time.Second},
			{inject.ProbeReset, "connection reset by peer", 0},
			{inject.ProbeSilent, "Client.Timeout exceeded", time.Second},
			{inject.ProbeSlow, "Client.Timeout", time.Second},
			{inject.ProbeQueueFull, "Client.Timeout exceeded", time.Second},
			{inject.ProbeNoRoute, "network is unreachable", 0},
			{inject.ProbeDeadNeighbour, "Client.Timeout exceeded", time.Second},
		} {
			t.Run(string(tc.kind), func(t *testing.T) {
				t.Parallel()
				p := &inject.Probe{Kind: tc.kind}
				target, err := p.Start(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				defer p.Close()
				for pid, netns := range map[int]uint32{target.ProberPID: target.Netns, target.TargetPID: target.TargetNetns} {
					if got := netnsInode(t, itoa(pid)); got != itoa(int(netns)) || got == host {
						t.Errorf("process %d in netns %s, want %d, not the host's", pid, got, netns)
					}
				}
				a, err := p.Attempt(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if a.Outcome != tc.kind.Expect() || !strings.Contains(a.Error, tc.wantError) || a.Took < tc.atLeast || a.Took > time.Second+testenv.Within(500*time.Millisecond) {
					t.Errorf("got %+v, want %s with %q", a, tc.kind.Expect(), tc.wantError)
				}
				tcp, err := os.ReadFile("/proc/" + itoa(target.TargetPID) + "/net/netstat")
				if err != nil {
					t.Fatal(err)
				}
				overflows := netstat(string(tcp), "ListenOverflows")
				if full := tc.kind == inject.ProbeQueueFull; full != (overflows != "0") {
					t.Errorf("%s ListenOverflows in the target's namespace", overflows)
				}
				began := time.Now()
				if err := p.Heal(t.Context()); err != nil {
					t.Fatal(err)
				}
				t.Logf("%s: %s after %s; healed in %s", a.Outcome, a.Error, a.Took, time.Since(began))
				if err := p.Close(); err != nil {
					t.Error(err)
				}
				for _, pid := range []int{target.ProberPID, target.TargetPID} {
					if err := syscall.Kill(pid, 0); err != syscall.ESRCH {
						t.Errorf("process %d still there: %v", pid, err)
					}
				}
			})
		}
	})
	links, _ = os.ReadFile("/proc/net/dev")
	if n := strings.Count(string(links), "\n"); n > linkCount || strings.Contains(string(links), "kn-") {
		t.Errorf("links on the host: %d lines before, %d after:\n%s", linkCount, n, links)
	}
}

// netstat returns a counter of /proc/net/netstat.
func netstat(text, name string) string {
	var names []string
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		for i := range f {
			if i < len(names) && names[i] == name && names[0] == f[0] {
				return f[i]
			}
		}
		names = f
	}
	return "none"
}
