package network

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/netlook"
	"github.com/kernosis/kernosis/diagnose/operation"
)

func NetworkDrops(h operation.Host) operation.Builtin {
	return operation.Builtin{
		Name: "network-drops",
		Doc: "Watches counters of lost packets during window: IP, TCP and UDP, devices and their qdiscs, the connection tracking table, and the CPUs' " +
			"receive queues, which cover the whole node. Artifact network-drops.txt has all counters that grew, and all loss counters.",
		Effect:     operation.Collect,
		Parameters: append(placeParameters(), windowParameter("3s")),
		Results: results(
			operation.Result{Name: "counters", Doc: "counters of losses, errors and retransmissions that grew, and by how much; at most 12"},
			operation.Result{Name: "linkDrops", Doc: "devices with drops or errors, at most 8"},
			operation.Result{Name: "softnetDropped", Doc: "packets that CPUs of the node dropped because a receive queue was full"},
			operation.Result{Name: "softnetSqueezed", Doc: "times a CPU of the node ran out of time with packets left"},
			operation.Result{Name: "conntrack", Doc: "tracked connections and their maximum"},
			operation.Result{Name: "conntrackDropped", Doc: "packets dropped because that table was full"},
			operation.Result{Name: "conntrackInsertFailed", Doc: "connections that could not be inserted, mostly because another one was faster"},
		),
		Run: inspect(h, findPlace, func(ctx context.Context, call *operation.Call, p *place,
			r *operation.Finding) (*operation.Verdict, error) {
			window := call.Parameters.Duration("window")
			before, err := takeSample(h, p, r)
			if err != nil {
				return nil, err
			}
			if err := operation.Pause(ctx, window); err != nil {
				return nil, err
			}
			after, err := takeSample(h, p, r)
			if err != nil {
				return nil, err
			}
			grew := after.since(before)
			grew.report(r, &after)
			err = r.Artifact(call, "network-drops.txt", func(w *operation.Page) { grew.write(w, &after, window) })
			return nil, err
		}),
	}
}

// sample has the counters of lost packets at one moment.
type sample struct {
	counters          map[string]uint64
	links             []link
	dropped, squeezed uint64 // sum of all CPUs
	softnet           bool
	conntrack         *conntrack
}

func takeSample(h operation.Host, p *place, r *operation.Finding) (s sample, err error) {
	if s.counters, err = h.FS.NetCounters(p.pid); err != nil {
		return s, fmt.Errorf("counters of %s: %w", p, err)
	}
	if s.links, _, err = linksOf(h, p, r); err != nil {
		return s, err
	}
	if proc, err := proc(h, p); err != nil {
		r.Note("can't read the counters of receive queues: %v", err)
	} else if cpus, err := proc.NetSoftnetStat(); err != nil {
		r.Note("can't read the counters of receive queues: %v", err)
	} else {
		s.softnet = true
		for _, c := range cpus {
			s.dropped += uint64(c.Dropped)
			s.squeezed += uint64(c.TimeSqueezed)
		}
	}
	c, err := readConntrack(h, p)
	switch {
	case errors.Is(err, netlook.ErrNoConntrack):
		r.Note("%s", netlook.ErrNoConntrack)
	case err != nil:
		r.Note("tracked connections: %v", err)
	default:
		s.conntrack = &c
	}
	return s, nil
}

// losses is the growth of the counters between two samples.
type losses struct {
	counters          map[string]uint64
	links             []string
	dropped, squeezed uint64
	conntrack         conntrack
}

func (s *sample) since(before sample) losses {
	l := losses{counters: grew(before.counters, s.counters), links: linksGrew(before.links, s.links)}
	l.dropped, l.squeezed = increase(before.dropped, s.dropped), increase(before.squeezed, s.squeezed)
	if was, now := before.conntrack, s.conntrack; was != nil && now != nil {
		l.conntrack = now.since(was)
	}
	return l
}

func (l *losses) report(r *operation.Finding, now *sample) {
	const shown, shownLinks = 12, 8
	r.Text("counters", display.List(grown(l.counters, true), shown))
	r.Text("linkDrops", display.List(l.links, shownLinks))
	if now.softnet {
		r.Uint("softnetDropped", l.dropped)
		r.Uint("softnetSqueezed", l.squeezed)
	}
	if now.conntrack != nil {
		r.Text("conntrack", now.conntrack.String())
		r.Uint("conntrackDropped", l.conntrack.noPlace())
		r.Uint("conntrackInsertFailed", l.conntrack.insertFailed)
	}
}

// grown lists counters with their growth, those that grew most first. losses: only loss counters.
func grown(grew map[string]uint64, losses bool) []string {
	names := slices.DeleteFunc(slices.Collect(maps.Keys(grew)), func(name string) bool { return losses && !reportsLoss(name) })
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(grew[b], grew[a]), cmp.Compare(a, b)) })
	for i, name := range names {
		names[i] = fmt.Sprintf("%s +%d", name, grew[name])
	}
	return names
}

// reportsLoss reports whether a counter counts losses, errors or reactions to them, judging by its
// name: the kernel has some three hundred counters, and adds new ones.
func reportsLoss(name string) bool {
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

// write writes everything that grew, and the totals of the loss counters.
func (l *losses) write(w *operation.Page, now *sample, window time.Duration) {
	w.Printf("during %s\n", window)
	for _, text := range grown(l.counters, false) {
		w.Printf("  %s\n", text)
	}
	for _, g := range l.links {
		w.Printf("  link %s\n", g)
	}
	w.Printf("  receive queues of the node: %d dropped, %d squeezed\n", l.dropped, l.squeezed)
	if c := now.conntrack; c != nil {
		w.Printf("  %s; %d dropped for lack of space, %d not inserted, %d dropped early\n", c, l.conntrack.noPlace(), l.conntrack.insertFailed, l.conntrack.earlyDrop)
	}
	w.Printf("\nsince the namespace was created\n")
	for _, name := range slices.Sorted(maps.Keys(now.counters)) {
		if n := now.counters[name]; n > 0 && reportsLoss(name) {
			w.Printf("  %s %d\n", name, n)
		}
	}
}
