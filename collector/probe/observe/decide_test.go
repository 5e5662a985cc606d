package observe

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/probe"
)

func TestDecide(t *testing.T) {
	t0 := time.Unix(1000, 0)
	at := func(s float64) time.Time { return t0.Add(time.Duration(s * float64(time.Second))) }
	const period = 10 * time.Second
	timed := func(timeout, period time.Duration, started time.Time) *course {
		return &course{spec: &probe.Spec{Timeout: timeout, Period: period}, started: started}
	}
	for name, c := range map[string]struct {
		of   []*course
		conn connection
		want int
		sure bool
	}{
		"one probe": {[]*course{timed(time.Second, period, time.Time{})}, connection{started: at(0)}, 0, true},
		"the timeout fits one": {
			[]*course{timed(time.Second, period, time.Time{}), timed(3*time.Second, period, time.Time{})},
			connection{at(0), 3*time.Second + time.Millisecond, true}, 1, true,
		},
		"a timeout that both have": {
			[]*course{timed(time.Second, period, time.Time{}), timed(time.Second, period, time.Time{})},
			connection{at(0), time.Second, true}, 0, false,
		},
		"the other was just made": {
			[]*course{timed(time.Second, period, at(0)), timed(time.Second, period, at(-10))},
			connection{at(0.002), time.Second, true}, 1, true,
		},
		"one is in step": {
			[]*course{timed(time.Second, period, at(-16)), timed(time.Second, period, at(-30.01))},
			connection{started: at(0)}, 1, true,
		},
		"one is in step, of the other nothing is known": {
			[]*course{timed(time.Second, period, time.Time{}), timed(time.Second, period, at(-30))},
			connection{started: at(0)}, 1, false,
		},
		"both are in step": {
			[]*course{timed(time.Second, period, at(-10)), timed(time.Second, period, at(-20))},
			connection{started: at(0)}, 1, false,
		},
		"refused at once says nothing of timeouts": {
			[]*course{timed(time.Second, period, at(-10)), timed(3*time.Second, 7*time.Second, at(-9))},
			connection{started: at(0)}, 0, true,
		},
	} {
		n, why := decide(c.of, &c.conn)
		if n != c.want || (why != "") != c.sure {
			t.Errorf("%s: %d, %q", name, n, why)
		}
	}
}

func TestMeaning(t *testing.T) {
	for _, c := range []struct {
		h              probe.Handler
		verdict, phase string
		received       uint64
		want           counts
	}{
		{probe.HTTP, event.VerdictSilent, "established", 0, countsFailure},
		{probe.TCP, event.VerdictReset, "established", 0, countsSuccess},
		{probe.TCP, event.VerdictNotAccepted, "established", 0, countsSuccess},
		{probe.TCP, event.VerdictRefused, "connect", 0, countsFailure},
		{probe.HTTP, event.VerdictSlow, "established", 9, countsMaybe},
		{probe.HTTP, event.VerdictReset, "established", 0, countsFailure},
		{probe.HTTP, event.VerdictReset, "established", 9, countsMaybe},
		{probe.GRPC, event.VerdictSlow, "established", 0, countsFailure},
	} {
		if got := meaning(c.h, &event.SockFailData{Verdict: c.verdict, Phase: c.phase, Received: c.received}); got != c.want {
			t.Errorf("%s %s %s: %d", c.h, c.verdict, c.phase, got)
		}
	}
}

func TestCauses(t *testing.T) {
	conn := &event.Conn{Dst: netip.MustParseAddrPort("10.0.0.7:8080")}
	ms := func(n int) event.Duration { return event.Duration(n) * event.Duration(time.Millisecond) }
	for want, s := range map[string]event.SockFailData{
		"RST: nothing listens on :8080":                                            {Verdict: event.VerdictRefused},
		"RST: nothing listens on :8080 (container listens on :8081)":               {Verdict: event.VerdictRefused, Evidence: []string{"a", "listens on :8081"}},
		"SYN unanswered for 1s":                                                    {Verdict: event.VerdictTimeout, Duration: ms(1003)},
		"SYN unanswered for 700ms, sent 2 times":                                   {Verdict: event.VerdictTimeout, Duration: ms(700), Retransmits: 1},
		"connection tracking is full: 9/9":                                         {Verdict: event.VerdictTimeout, Evidence: []string{"connection tracking is full: 9/9"}},
		"accept queue full 129/128 on :8080":                                       {Verdict: event.VerdictAcceptQueueFull, QueueLen: 129, QueueMax: 128},
		"accept queue full on :8080":                                               {Verdict: event.VerdictAcceptQueueFull},
		"connected, but not accepted in 1s: it waits in the accept queue of :8080": {Verdict: event.VerdictNotAccepted, Duration: ms(1000)},
		"SYN answered, request acked, no byte back in 1s":                          {Verdict: event.VerdictSilent, Duration: ms(999)},
		"the answer started, but was not complete in 1s":                           {Verdict: event.VerdictSlow, Duration: ms(1001)},
		"connection to :8080 reset after it was established":                       {Verdict: event.VerdictReset},
		"connection to :8080 reset in the middle of the answer":                    {Verdict: event.VerdictReset, Received: 1},
		"no route to 10.0.0.7 (ENETUNREACH)":                                       {Verdict: event.VerdictNoRoute, Errno: "ENETUNREACH"},
		"the next hop to 10.0.0.7 does not resolve":                                {Verdict: event.VerdictNeighborFailed},
		"ICMP host unreachable came back":                                          {Verdict: event.VerdictUnreachable, Evidence: []string{"x", "ICMP host unreachable came back"}},
		"packet dropped on this node: TC_INGRESS":                                  {Verdict: event.VerdictLocalDrop, Evidence: []string{"packet dropped on this node: TC_INGRESS"}},
		"no local port is free to connect to 10.0.0.7:8080":                        {Verdict: event.VerdictPortsExhausted},
	} {
		if got := causeOf(&s, conn, time.Second); got != want {
			t.Errorf("%s: %q, want %q", s.Verdict, got, want)
		}
	}
}

// Targets of probes: the pod, the node, an explicit address, IPv6.
func TestEndpoints(t *testing.T) {
	spec := func(host string) *probe.Spec {
		return &probe.Spec{Handler: probe.HTTP, Host: host, Port: 80, Timeout: time.Second, Period: time.Second}
	}
	pod := func(uid, address string, specs ...*probe.Spec) *probe.Pod {
		p := &probe.Pod{UID: uid, Namespace: "n", Name: uid}
		if address != "" {
			p.Addresses = []netip.Addr{netip.MustParseAddr(address), netip.MustParseAddr("fd00::99")}
		}
		for i, s := range specs {
			p.Containers = append(p.Containers, probe.Container{Name: string(rune('a' + i)), Liveness: s})
		}
		return p
	}
	active, ended := pod("e", "10.0.0.8", spec("")), pod("f", "10.0.0.9", spec(""))
	active.Active, ended.Terminated = true, true
	x := newIndex([]*probe.Pod{
		pod("a", "10.0.0.7", spec(""), spec("10.1.1.1"), spec("localhost"), spec("db.example")),
		pod("b", "fd00::7", spec("")),
		pod("c", "192.168.0.1", spec("127.0.0.1")),
		pod("d", "", spec("")), // it has no address yet
		active, ended,
	}, nil)
	var got []string
	for _, target := range x.targets([]uint32{7, 8}) {
		got = append(got, target.Name+" "+target.Address.String())
	}
	// Two pods with the same address and port share a place.
	want := []string{
		"n/a:80 10.0.0.7", "n/a:80 10.0.0.7", "n/a:80 10.1.1.1", "n/a:80 10.1.1.1", "n/a:80 127.0.0.1", "n/a:80 127.0.0.1",
		"n/b:80 fd00::7", "n/b:80 fd00::7",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if n := len(x.places[netip.MustParseAddrPort("127.0.0.1:80")].probes); n != 2 || x.unwatched != 2 {
		t.Errorf("%d probes at localhost, %d that can't be watched", n, x.unwatched)
	}
}
