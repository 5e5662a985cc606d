package collector

import (
	"net/netip"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/vmtest/netlab"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// A namespace as new as the target in it is found at the first failure.
func TestSockFailNewTarget(t *testing.T) {
	old := netlab.New(t)
	a := newSockAgent(t, Target{Port: 1, NetNS: old.Inode})
	a.s.prober.namespaces.Look() // what is known of namespaces is recent, too

	prober, target := netlab.Pair(t)
	fillQueue("10.97.31.2:80")(prober, target)
	if err := a.s.targets.Set("later", []Target{{Address: netip.MustParseAddr("10.97.31.2"), NetNS: prober.Inode}}); err != nil {
		t.Fatal(err)
	}
	a.poll()
	if err := prober.Probe("10.97.31.2:80", 100*time.Millisecond, ""); err == nil {
		t.Fatal("the probe succeeded")
	}
	if got := a.events(1)[0].SockFail; got.Verdict != event.VerdictAcceptQueueFull {
		t.Errorf("%s, evidence %q", got.Verdict, got.Evidence)
	}
}

// A lookup serves only those connections to the same place that were under way when it was made.
func TestSockFailLookIsShared(t *testing.T) {
	prober, target := netlab.Pair(t)
	target.Listen("10.97.31.2:80", 5)
	p := newProber(hostfs.New("/"))
	began := time.Now()
	first := question{place: place{netns: prober.Inode, dst: netip.MustParseAddrPort("10.97.31.2:80")}, started: began}
	l := p.look(&first)
	if !l.route.Known || !l.listener.Present {
		t.Fatalf("found %+v", l)
	}
	for name, c := range map[string]struct {
		change func(q *question)
		shared bool
	}{
		"under way":                     {func(q *question) { q.started = began.Add(-time.Second) }, true},
		"begun since":                   {func(q *question) { q.started = time.Now() }, false},
		"established":                   {func(q *question) { q.established = true }, false},
		"another port":                  {func(q *question) { q.dst = netip.MustParseAddrPort("10.97.31.2:81") }, false},
		"from another namespace":        {func(q *question) { q.netns = target.Inode }, false},
		"reported by a reset":           {func(q *question) { q.reset = true }, false},
		"under way, but looked at late": {func(q *question) { agePast(p, sharedFor+time.Second) }, false},
	} {
		p.past.Purge()
		p.look(&first)
		q := first
		c.change(&q)
		p.looks = rate.NewLimiter(0, 0) // any lookup now is refused
		if got := p.look(&q); got.skipped == c.shared || c.shared && got != l {
			t.Errorf("%s: %+v", name, got)
		}
		p.looks = rate.NewLimiter(lookRate, lookBurst)
	}
}

// agePast makes all past lookups older.
func agePast(p *prober, by time.Duration) {
	for _, at := range p.past.Keys() {
		l, _ := p.past.Peek(at)
		l.at = l.at.Add(-by)
		p.past.Add(at, l)
	}
}

// The number of a removed namespace is soon reused: an address found in the old one must not be
// looked up in the new one.
func TestSockFailHomeMoved(t *testing.T) {
	prober, target := netlab.Pair(t)
	p := newProber(hostfs.New("/"))
	q := &question{place: place{netns: prober.Inode, dst: netip.MustParseAddrPort("10.97.31.2:80")}}
	p.homes.Add(q.dst.Addr(), home{inode: prober.Inode, until: time.Now().Add(homesFor)})
	for range 2 { // found by a search, then kept
		inode, v := p.home(q, time.Now().Add(testenv.Within(10*time.Second)))
		if v == nil || inode != target.Inode {
			t.Fatalf("found in %d, want %d", inode, target.Inode)
		}
		v.Close()
	}
}
