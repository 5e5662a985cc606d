package vmtest

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/bpf"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/vmtest/agenttest"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// sockLimit bounds operations here that normally take a moment, except on an emulated CPU.
const sockLimit = 20 * time.Second

// rowsAtOnce keeps an emulated CPU busy, but leaves enough of it that responses arrive before a
// probe times out.
const rowsAtOnce = 2

// TestSockFail makes probes of a target fail in every possible way, over IPv4 and IPv6, with one
// agent that watches all targets. Rows mostly wait for a probe's timeout, so they run in parallel.
func TestSockFail(t *testing.T) {
	sockModules(t)
	// A permanent target keeps the programs attached.
	a := startAgent(t, "--target", "192.0.2.1:9")
	eventually(t, "the programs are attached", time.Minute, func() bool {
		watched, err := bpf.WatchedBy(a.Pins, 0, netip.MustParseAddrPort("192.0.2.1:9"))
		return err == nil && watched
	})
	kernel := kernelTypes(t)
	// A kernel sends one host about six ICMP errors at once and then one per second; with this
	// setting, unreachable routes respond to each packet.
	setSysctl(t, "net/ipv4/route/error_cost", "0")
	t.Cleanup(func() { sockFailEnd(t, a) }) // when all rows are done
	slots := make(chan struct{}, rowsAtOnce)
	for i, f := range sockFaults() {
		// Each row has its own addresses, because a pod's address is also unique on a node.
		for _, family := range []sockFamily{ipv4(uint8(2 * i)), ipv6(uint8(2*i + 1))} {
			if family.v6 && f.only4 {
				continue
			}
			t.Run(f.name+family.suffix, func(t *testing.T) {
				t.Parallel()
				slots <- struct{}{}
				defer func() { <-slots }()
				l := newSockLab(t, a, kernel, family)
				l.run(f, f.name+family.suffix)
			})
		}
	}
}

// sockFailEnd checks what is known only at the end: that nothing was reported late, lost, or left
// over.
func sockFailEnd(t *testing.T, a *agenttest.Agent) {
	a.Stop()
	entries := a.Entries()
	noLoss(t, entries)
	byTarget := map[string]int{}
	for _, ev := range agenttest.Events(entries, event.SockFail) {
		byTarget[ev.SockFail.Target]++
	}
	for target, n := range byTarget {
		if n != faults {
			t.Errorf("%s: %d events at the end, want %d", target, n, faults)
		}
	}
	if status := agenttest.Condition(entries, "ProbeTargetUnreachable").Status; status != problem.False {
		t.Errorf("ProbeTargetUnreachable is %q in the end", status)
	}
}

// run runs one row: it breaks the target, probes it, mends it, and probes it again.
func (l *sockLab) run(f sockFault, target string) {
	l.t.Helper()
	l.name = target
	l.at = address(l.gateway)
	if f.at != nil {
		l.at = address(f.at(l.sockFamily))
	}
	f.inject(l)
	want := f.want(l)
	l.watch(f)
	l.failedProbes(f)
	l.reported(want)
	f.heal(l)
	if err := l.prober.Probe(l.at.String(), sockLimit, "ping"); err != nil {
		l.t.Fatalf("the probe of a target that is mended: %v", err)
	}
	l.cleared(want)
}

// watch gives the agent a file with the target and waits until it is in effect.
func (l *sockLab) watch(f sockFault) {
	l.t.Helper()
	text := fmt.Sprintf("targets:\n- {name: %s, address: %q, port: %d, netns: %d}\n",
		l.name, l.at.Addr(), l.at.Port(), l.prober.Inode)
	if l.v6 { // for IPv4 the agent must find the target's namespace itself
		text = strings.Replace(text, "}", fmt.Sprintf(", targetNetns: %d}", l.target.Inode), 1)
	}
	if f.slow {
		text = strings.Replace(text, "}", ", slowAfter: 1s}", 1)
	}
	path := filepath.Join(l.agent.Targets, l.name+".yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { os.Remove(path) })
	l.await("the target is watched", func() bool {
		watched, err := bpf.WatchedBy(l.agent.Pins, l.prober.Inode, l.at)
		if err != nil {
			l.t.Fatal(err)
		}
		return watched
	})
}

// await polls the agent's state. It polls rarely, because polling often would slow down the agent
// on an emulated CPU.
func (l *sockLab) await(what string, ok func() bool) {
	l.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	within := testenv.Within(sockLimit)
	for end := time.Now().Add(within); !ok(); <-tick.C {
		if time.Now().After(end) {
			l.t.Fatalf("not within %s: %s; %d events so far", within, what, len(l.events(event.SockFail)))
		}
	}
}

// events returns the events of the row's target.
func (l *sockLab) events(kind event.Kind) []*event.Event {
	return slices.DeleteFunc(agenttest.Events(l.agent.Entries()[l.from:], kind), func(ev *event.Event) bool {
		return ev.SockFail.Target != l.name
	})
}

// failedProbes runs the probes concurrently, as many as faults are provoked.
func (l *sockLab) failedProbes(f sockFault) {
	l.t.Helper()
	timeout := time.Second // kubelet's
	if f.timeout != 0 {
		timeout = f.timeout
	}
	errs, err := l.prober.Probes(faults, l.at.String(), timeout, f.request, f.slow)
	if err != nil {
		l.t.Fatal(err)
	}
	if slices.Contains(errs, nil) {
		l.t.Fatalf("some probes did not fail: %v", errs)
	}
	l.t.Logf("probes: %v", errs[0])
}

// reported waits for the events and checks them and the resulting problems.
func (l *sockLab) reported(want sockWant) {
	l.t.Helper()
	l.await("an event of each fault", func() bool { return len(l.events(event.SockFail)) >= faults })
	evidence, excluded := regexp.MustCompile(want.evidence), regexp.MustCompile(want.excluded)
	wrong := 0
	for i, ev := range l.events(event.SockFail) {
		d := ev.SockFail
		text := fmt.Sprintf("%s in phase %s with %q after %s, sent %d more times\nevidence %q\nexcluded %q\nqueue %d/%d",
			d.Verdict, d.Phase, d.Errno, d.Duration, d.Retransmits, d.Evidence, d.Excluded, d.QueueLen, d.QueueMax)
		if i == 0 {
			l.t.Log(text)
		}
		ok := d.Verdict == want.verdict && d.Phase == want.phase() && slices.Contains(want.errnos(), d.Errno) &&
			evidence.MatchString(strings.Join(d.Evidence, "\n")) && excluded.MatchString(strings.Join(d.Excluded, "\n")) &&
			(want.queue == nil || want.queue(d.QueueLen, d.QueueMax)) &&
			ev.Conn.Dst == l.at && ev.Conn.NetNS == l.prober.Inode && ev.Task.TGID == uint32(os.Getpid())
		if !ok {
			wrong++
			l.t.Logf("not as wanted, %d: %s\nconnection %+v of %s", i, text, *ev.Conn, ev.Task)
		}
	}
	if wrong > 0 {
		l.t.Errorf("%d of %d events are not: %+v", wrong, faults, want)
	}
	// The problem is in the same entry as its event.
	found := l.problems(want.rule())
	if n := len(found); n != faults || found[n-1].Count != faults || found[n-1].State != problem.Firing {
		l.t.Errorf("%s fired %d times: %+v", want.rule(), n, found)
	}
	found = l.problems(unreachableRule)
	if len(found) != 1 || found[0].State != problem.Firing || found[0].Condition != "ProbeTargetUnreachable" {
		l.t.Errorf("%s: %+v", unreachableRule, found)
	}
}

// unreachableRule fires for any kind of failure.
const unreachableRule = "probe-target-unreachable"

// problems returns the problems of a rule for the row's target.
func (l *sockLab) problems(rule string) []problem.Problem {
	return problems(l.agent.Entries()[l.from:], rule, func(p *problem.Problem) bool { return p.Subject == l.name })
}

// cleared waits until the agent has reported that the target has recovered, and checks that nothing
// is left and nothing else was reported.
func (l *sockLab) cleared(want sockWant) {
	l.t.Helper()
	l.await("the target's recovery", func() bool { return len(l.events(event.SockFailRecovered)) > 0 })
	if events := l.events(event.SockFail); len(events) != faults {
		l.t.Errorf("%d events of %d faults, the last one: %+v", len(events), faults, *events[len(events)-1].SockFail)
	}
	for _, rule := range []string{want.rule(), unreachableRule} {
		found := l.problems(rule)
		if n := len(found); n == 0 || found[n-1].State != problem.Resolved {
			l.t.Errorf("%s after the recovery: %+v", rule, found)
		}
	}
	for _, e := range l.agent.Entries()[l.from:] {
		for _, tr := range e.Transitions {
			if p := tr.Problem; p != nil && p.Subject == l.name && p.Rule != want.rule() && p.Rule != unreachableRule {
				l.t.Errorf("reported also: %+v", p)
			}
		}
	}
}
