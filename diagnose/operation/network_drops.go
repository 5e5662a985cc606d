package operation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kernosis/kernosis/collector/display"
)

// NetworkDrops collects where packets are lost in a namespace.
func NetworkDrops(h Host) Builtin {
	return Builtin{
		Name: "network-drops",
		Doc: "Watches the counters of lost packets during the window: of IP, TCP and UDP, of devices and their " +
			"qdiscs, of the table of tracked connections, and of the CPUs' receive queues, which are the whole node's. The " +
			"artifact network-drops.txt has all counters that grew, and all of losses.",
		Effect:     Collect,
		Parameters: append(netPlaceParameters(), netWindowParameter("3s")),
		Results: netResults(
			Result{"counters", "counters of losses, errors and retransmissions that grew, with how much; at most 12"},
			Result{"linkDrops", "devices that dropped packets or saw errors, at most 8"},
			Result{"softnetDropped", "packets that CPUs of the node dropped because a receive queue was full"},
			Result{"softnetSqueezed", "times that a CPU of the node had no more time for packets that were there"},
			Result{"conntrack", "tracked connections and how many there may be"},
			Result{"conntrackDropped", "packets dropped because that table was full"},
			Result{"conntrackInsertFailed", "connections that could not be put into it"},
		),
		Run: func(ctx context.Context, call *Call) (Output, error) {
			p, err := h.netPlace(call.Parameters)
			if err != nil {
				return Output{}, err
			}
			r := newNetReport(&p)
			window := call.Parameters.Duration("window")
			before, err := h.netSample(&p, r)
			if err != nil {
				return Output{}, err
			}
			if err := pauseFor(ctx, window); err != nil {
				return Output{}, err
			}
			after, err := h.netSample(&p, r)
			if err != nil {
				return Output{}, err
			}
			grew := after.since(before)
			grew.report(r, &after)
			err = r.artifact(call, "network-drops.txt", func(w *page) { grew.write(w, &after, window) })
			return r.output(nil), err
		},
	}
}

// netSample is what tells of lost packets, at one moment.
type netSample struct {
	counters          map[string]uint64
	links             []netLink
	dropped, squeezed uint64 // of all CPUs
	softnet           bool
	conntrack         *netConntrack
}

func (h Host) netSample(p *netPlace, r *finding) (s netSample, err error) {
	if s.counters, err = h.FS.NetCounters(p.pid); err != nil {
		return s, fmt.Errorf("counters of %s: %w", p, err)
	}
	view, err := h.netOpen(p)
	if err != nil {
		return s, err
	}
	defer view.Close()
	if s.links, err = netLinks(view, r); err != nil {
		return s, err
	}
	if proc, err := h.netProc(p); err != nil {
		r.note("no counters of receive queues: %v", err)
	} else if cpus, err := proc.NetSoftnetStat(); err != nil {
		r.note("no counters of receive queues: %v", err)
	} else {
		s.softnet = true
		for _, c := range cpus {
			s.dropped += uint64(c.Dropped)
			s.squeezed += uint64(c.TimeSqueezed)
		}
	}
	c, err := h.netConntrack(p)
	switch {
	case errors.Is(err, errNoConntrack):
		r.note("%s", errNoConntrack)
	case err != nil:
		r.note("tracked connections: %v", err)
	default:
		s.conntrack = &c
	}
	return s, nil
}

// netLosses is how much the counters grew between two samples.
type netLosses struct {
	counters          map[string]uint64
	links             []netLinkGrowth
	dropped, squeezed uint64
	conntrack         netConntrack
}

func (s *netSample) since(before netSample) netLosses {
	l := netLosses{counters: netGrew(before.counters, s.counters), links: netLinksGrew(before.links, s.links)}
	l.dropped, l.squeezed = netIncrease(before.dropped, s.dropped), netIncrease(before.squeezed, s.squeezed)
	if was, now := before.conntrack, s.conntrack; was != nil && now != nil {
		l.conntrack = netConntrack{
			drop: netIncrease(was.drop, now.drop), insertFailed: netIncrease(was.insertFailed, now.insertFailed),
			earlyDrop: netIncrease(was.earlyDrop, now.earlyDrop),
		}
	}
	return l
}

func (l *netLosses) report(r *finding, now *netSample) {
	const shown, shownLinks = 12, 8
	r.text("counters", display.List(netGrown(l.counters, true), shown))
	var links []string
	for _, g := range l.links {
		links = append(links, g.String())
	}
	r.text("linkDrops", display.List(links, shownLinks))
	if now.softnet {
		r.uint("softnetDropped", l.dropped)
		r.uint("softnetSqueezed", l.squeezed)
	}
	if now.conntrack != nil {
		r.text("conntrack", now.conntrack.String())
		r.uint("conntrackDropped", l.conntrack.drop)
		r.uint("conntrackInsertFailed", l.conntrack.insertFailed)
	}
}

// netGrown lists counters with how much they grew, those that grew most first; losses:
// only those that tell of losses.
func netGrown(grew map[string]uint64, losses bool) []string {
	names := slices.DeleteFunc(slices.Collect(maps.Keys(grew)), func(name string) bool { return losses && !netTellsLoss(name) })
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(grew[b], grew[a]), cmp.Compare(a, b)) })
	for i, name := range names {
		names[i] = fmt.Sprintf("%s +%d", name, grew[name])
	}
	return names
}

// netTellsLoss tells by a counter's name whether it counts losses, errors or what is done
// about them. The kernel has some three hundred, and adds to them.
func netTellsLoss(name string) bool {
	_, name, _ = strings.Cut(name, ".")
	for _, part := range []string{
		"Drop", "Overflow", "Fail", "Err", "Discard", "NoRoute", "NoPorts", "Lost", "Abort", "Timeout", "Prune", "Retrans",
		"Rsts", "UnknownProtos", "Truncated", "Full", "ZeroWindow", "OutOfWindow", "Rejected", "SyncookiesFailed",
	} {
		if strings.Contains(name, part) {
			return true
		}
	}
	return false
}

// write writes all that grew, and where counters of losses stand.
func (l *netLosses) write(w io.Writer, now *netSample, window time.Duration) {
	netPrintf(w, "during %s\n", window)
	for _, text := range netGrown(l.counters, false) {
		netPrintf(w, "  %s\n", text)
	}
	for _, g := range l.links {
		netPrintf(w, "  link %s\n", g)
	}
	netPrintf(w, "  receive queues of the node: %d dropped, %d squeezed\n", l.dropped, l.squeezed)
	if c := now.conntrack; c != nil {
		netPrintf(w, "  %s; %d dropped, %d not inserted, %d dropped early\n", c, l.conntrack.drop, l.conntrack.insertFailed, l.conntrack.earlyDrop)
	}
	netPrintf(w, "\nsince the namespace was made\n")
	for _, name := range slices.Sorted(maps.Keys(now.counters)) {
		if n := now.counters[name]; n > 0 && netTellsLoss(name) {
			netPrintf(w, "  %s %d\n", name, n)
		}
	}
}
