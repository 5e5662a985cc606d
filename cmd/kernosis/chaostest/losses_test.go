package chaostest_test

import (
	"context"
	"slices"
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/vmtest/agenttest"
)

// window is a period, in time since boot, of which the agent may have lost or repeat something: it had
// it in memory only, because the disk refused it, and then it was killed.
type window struct{ from, to time.Duration }

func (w window) has(at time.Duration) bool { return w.from <= at && at <= w.to }

const (
	// savedWithin is how soon a running agent saves what has happened.
	savedWithin = 2 * time.Second
	// settledWithin is how long an agent may lag after a start, a stop or a lack of CPU.
	settledWithin = 10 * time.Second
)

// losses are the times at which the agent may have lost something. It follows from what the test
// did, not from what the agent says.
type losses struct {
	refused  *window // what the disk refuses, or has refused since the latest kill; to is 0 while it does
	closed   []window
	unsaved  time.Duration // where the latest of them begins, until the agent saves again; 0: it has
	slowFrom time.Duration // since when the agent lags
	slowTo   time.Duration
}

// lags records that the agent does not run, or only slowly, at this moment.
func (l *losses) lags() {
	now := hostfs.BootTime()
	if now > l.slowTo {
		l.slowFrom = now
	}
	l.slowTo = now + settledWithin
}

// refuses records that the disk begins to refuse what the agent writes. It refuses what the agent has not
// written yet, too.
func (l *losses) refuses(lagging bool) {
	now := hostfs.BootTime()
	if l.refused == nil {
		l.refused = &window{from: now - savedWithin}
		if lagging || now < l.slowTo {
			l.refused.from = min(l.refused.from, l.slowFrom-savedWithin)
		}
	}
	if l.unsaved > 0 { // what was lost then was read again, and is refused again
		l.refused.from = min(l.refused.from, l.unsaved)
	}
	l.refused.to = 0
}

// accepts records that the disk accepts writes again. What it has refused is still in memory only.
func (l *losses) accepts() {
	if l.refused != nil && l.refused.to == 0 {
		l.refused.to = hostfs.BootTime() + savedWithin
	}
}

// saved records that the agent has written everything.
func (l *losses) saved() { l.refused, l.unsaved = nil, 0 }

// forgets records that the agent's memory is lost.
func (l *losses) forgets() {
	if l.refused != nil {
		l.unsaved = l.refused.from
	}
	l.closed = l.now()
	l.refused = nil
}

// now returns the windows, with the one that would end now.
func (l *losses) now() []window {
	if l.refused == nil {
		return l.closed
	}
	last := *l.refused
	if now := hostfs.BootTime(); last.to == 0 || last.to > now {
		last.to = now
	}
	return append(slices.Clip(l.closed), last)
}

// lossCounters are the agent's counters of what the journal lacks.
type lossCounters struct {
	oomRecords float64 // kernel records of OOM kills
	refused    float64 // journal entries that the disk has refused
}

// sampleWithin is how long a sample may take.
const sampleWithin = 500 * time.Millisecond

// sample reads the agent's counters of losses, which begin anew with each process. It does nothing if the
// agent does not answer soon.
func (w *world) sample() {
	if !w.alive || w.harmed[process] != nil {
		return
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), sampleWithin)
	defer cancel()
	all, err := w.metrics(ctx)
	if err != nil {
		return
	}
	w.counted[all.Sum("process_start_time_seconds")] = lossCounters{
		oomRecords: all.Sum("kernosis_records_lost_total", "stem", "oomkill"),
		refused:    all.Sum("kernosis_journal_failed_total"),
	}
}

// named returns the sums of the counters over all runs of the agent. A run that was killed has reported its lost
// records on its standard output, too, even if no sample has seen them.
func (w *world) named() (sum lossCounters) {
	for _, c := range w.counted {
		sum.oomRecords += c.oomRecords
		sum.refused += c.refused
	}
	printed := 0.0
	for _, ev := range agenttest.Events(w.agent.Entries(), event.Lost) {
		if ev.Lost.Stem == "oomkill" {
			printed += float64(ev.Lost.Count)
		}
	}
	sum.oomRecords = max(sum.oomRecords, printed)
	return sum
}
