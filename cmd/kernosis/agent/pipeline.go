package agent

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kernosis/kernosis/collector"
	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/logpattern"
	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/diagnose/worker"
	"github.com/kernosis/kernosis/reporter/console"
	"github.com/kernosis/kernosis/reporter/journal"
	"github.com/kernosis/kernosis/reporter/metrics"
	"github.com/kernosis/kernosis/reporter/web"
)

// pipeline passes each event through engine, journal and output. It serialises the events of all
// sources.
type pipeline struct {
	stateDir string
	log      *slog.Logger
	metrics  *metrics.Metrics
	problems *metrics.Problems // node-problem-detector's metrics; nil if not served
	journal  *journal.Journal
	out      console.Writer
	canary   func(*event.CanaryData)
	patterns func(*logpattern.Set) // sets the patterns that the logs look for
	lasting  func(collector.Emit)  // makes the sources report their lasting states once more
	cluster  clusterReporter       // reports nothing without a cluster
	page     *web.Page             // nil if no page is served
	causes   *worker.Worker        // nil if diagnosing is off
	pods     nodePods              // nil if the node's pods are unknown

	reloading sync.Mutex // held while rules are read and applied

	mu       sync.Mutex
	engine   *detector.Engine
	time     hostfs.Timekeeper
	armed    time.Duration // time since boot at which run next looks at the engine
	hung     bool          // whether the state disk hung when run looked last; used by run only
	roomless uint64        // events of sources beyond the limit when run looked last; used by run only
	// wake receives when the engine gets a deadline before armed.
	wake chan struct{}
	// recheck receives when the state disk begins to hang, and when it stops hanging.
	recheck chan struct{}
	// unreported counts the entries with transitions that wait for flushEntries; the timer soon
	// settles those of logs. Guarded by mu.
	unreported int
	soon       *time.Timer
	beat       atomic.Int64 // when run last advanced the engine's time, in nanoseconds since boot
	losing     bool         // whether entries were lost since the last written one; guarded by mu, as written is
	// saw has the sources that were up when the previous run of this boot ended; ended is that
	// time, since boot. Set by restore.
	saw     map[string]bool
	ended   time.Duration
	written uint64 // the journal's newest written entry when noteLoss was last called
}

// Names in the state folder: the journal's folder, and the file of the engine's state.
const (
	JournalDir = "journal"
	EngineFile = "engine.json"
)

// now returns the wall clock's and the engine's time. The lock is held.
func (a *pipeline) now() event.Moment {
	wall, boot := a.time.Now()
	return event.Moment{Wall: wall, Boot: boot}
}

// observe is the Emit of sources that can't emit an event again. It settles each event at once.
func (a *pipeline) observe(ev *event.Event) {
	a.take(ev)
	a.settle()
}

// settle flushes all events that were emitted. Sources that can emit events again call it before
// they finish with these: a ring before it releases records, a log before it saves its position.
// When settle returns, all events are in the journal and printed, unless the state disk hangs.
func (a *pipeline) settle() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.flushEntries()
}

// How many entries of logs are reported together, and how long the first one waits for more.
const (
	reportTogether = 64
	reportWithin   = 5 * time.Millisecond
)

// takeLine is the Emit of logs, which rarely settle.
func (a *pipeline) takeLine(ev *event.Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	before := a.unreported
	a.handle(ev)
	switch {
	case a.unreported >= reportTogether:
		a.flushEntries()
	case before == 0 && a.unreported > 0 && a.soon == nil:
		a.soon = time.AfterFunc(reportWithin, a.settle)
	case before == 0 && a.unreported > 0:
		a.soon.Reset(reportWithin)
	}
}

// take is the Emit of sources that settle soon.
func (a *pipeline) take(ev *event.Event) {
	if ev.Kind == event.Canary {
		// Through the lock, so that a stuck engine fails the canary.
		a.mu.Lock()
		a.mu.Unlock() //nolint:staticcheck // the point is to have had it
		a.canary(ev.CanaryRun)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.handle(ev)
}

// seen reports whether the engine has seen an event that handle has not got yet.
func (a *pipeline) seen(ev *event.Event) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.engine.Seen(ev)
}

// handle passes an event to the engine, unless the engine has seen it. The lock is held.
func (a *pipeline) handle(ev *event.Event) {
	if a.engine.Seen(ev) {
		return // handled before a restart, but not yet released to the kernel
	}
	ev.PodLabels = a.podLabels(ev)
	at := a.now()
	for _, admitted := range a.engine.Admit(ev, at) {
		a.step(admitted, at)
	}
	if ev.CPU != event.NoCPU {
		a.metrics.Handled(time.Since(ev.Time))
	}
	a.poke()
}

// step passes an event to the engine, and records the result.
func (a *pipeline) step(ev *event.Event, at event.Moment) {
	e := journal.NewEntry(at)
	e.Event, e.Transitions = ev, a.engine.Observe(ev, e.Moment())
	a.metrics.Event(ev, time.Since(e.Now))
	if a.engine.Changed() { // else it is an unchanged gauge, which a replay doesn't need
		a.record(e)
	}
}

func (a *pipeline) tick() {
	a.mu.Lock()
	defer a.mu.Unlock()
	e := journal.NewEntry(a.now())
	if e.Transitions = a.engine.Tick(e.Moment()); len(e.Transitions) > 0 {
		a.record(e)
	}
	for _, ev := range a.engine.Release(e.Moment()) {
		a.step(ev, e.Moment())
	}
	a.flushEntries()
}

// flush records the events that rate limits withhold, at the agent's end.
func (a *pipeline) flush() {
	a.mu.Lock()
	defer a.mu.Unlock()
	at := a.now()
	for _, ev := range a.engine.Flush(at) {
		a.step(ev, at)
	}
	a.flushEntries()
}

// replace puts new rules in force. Lasting states were reported to the previous rules only, so they
// are reported once more to the rules that are new.
func (a *pipeline) replace(rules *detector.RuleSet) {
	added, sources := a.install(rules)
	if len(added) == 0 {
		return
	}
	take := func(ev *event.Event) { a.takeLasting(ev, added) }
	for _, s := range sources {
		take(hostfs.Stamped(event.Event{Kind: event.Source, Source: "engine", SourceUp: &event.SourceData{Stem: s.Stem, Up: s.Up, Reason: s.Reason}}))
	}
	a.lasting(take) // not under the lock: a source may report at once
}

// install puts rules in force for events from now on. It returns the names of the new rules, and
// the states of the sources.
func (a *pipeline) install(rules *detector.RuleSet) (added []string, sources []detector.SourceState) {
	a.mu.Lock()
	defer a.mu.Unlock()
	added = rules.NewSince(a.engine.Rules())
	e := journal.NewEntry(a.now())
	e.Transitions = a.engine.Replace(rules, e.Moment())
	a.report(e)
	a.setConditions()
	// After the engine, so that the engine's rules match the new patterns' hits.
	a.patterns(rules.PatternSet())
	return added, a.engine.Sources()
}

// takeLasting passes an event of a lasting state to rules that are newer than the event.
func (a *pipeline) takeLasting(ev *event.Event, rules []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	ev.PodLabels = a.podLabels(ev)
	e := journal.NewEntry(a.now())
	var matched []string
	if matched, e.Transitions = a.engine.ObserveLasting(ev, rules, e.Moment()); len(matched) > 0 {
		e.Event, e.Rules = ev, matched
	}
	a.report(e)
}

// report records, writes and reports a step if it has any effect. The lock is held.
func (a *pipeline) report(e journal.Entry) {
	if e.Event != nil || e.Boot != "" || len(e.Transitions) > 0 {
		a.record(e)
		a.flushEntries()
	}
	a.poke()
}

// record adds one step to journal, metrics and output. The journal comes first: nothing is reported or
// printed until flushEntries has written the entry. Only if the disk hangs is the entry reported while
// it waits in memory ([ADR 19](docs/adr/0019-state-disk-that-hangs.md)). Entries are flushed together,
// because waiting for each one costs more than all the rest. The lock is held.
func (a *pipeline) record(e journal.Entry) {
	a.causes.Observe(e.Transitions, e.Now)
	for _, t := range e.Transitions {
		if t.Problem != nil {
			t.Problem.Evidence = nil // the journal has the events themselves
		}
		a.metrics.Transition(t)
		if a.problems != nil {
			a.problems.Transition(t)
		}
	}
	var err error
	e.Seq, e.Line, err = a.journal.Add(e)
	a.noteLoss(err)
	a.cluster.add(e)
	if err := a.out.Write(e); err != nil {
		a.metrics.OutputErrors(1)
	}
	if len(e.Transitions) > 0 {
		a.unreported++
	}
}

// flushEntries writes the recorded entries, then reports and prints them. The lock is held.
func (a *pipeline) flushEntries() {
	changed := a.unreported > 0
	a.unreported = 0
	a.noteLoss(a.journal.Flush())
	if changed {
		a.page.Changed()
	}
	a.cluster.flush(a.journal.Seq(), a.engine.Conditions)
	if lost, err := a.out.Flush(); err != nil {
		a.metrics.OutputErrors(lost)
	}
}

// noteLoss logs that journal entries may be lost, once until the next entry is written.
func (a *pipeline) noteLoss(err error) {
	written := a.journal.Written()
	switch {
	case err == nil:
		a.losing = a.losing && written == a.written
	case !a.losing:
		a.log.Error("journal entries may be lost", "error", err)
		a.losing = true
	}
	a.written = written
}

func (a *pipeline) conditions() []problem.Condition {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.engine.Conditions()
}

// reportConditions reports the conditions of an earlier run to the metrics and the cluster, because
// no transition reports them.
func (a *pipeline) reportConditions() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.setConditions()
}

func (a *pipeline) setConditions() {
	conditions := a.engine.Conditions()
	a.metrics.Conditions(conditions)
	if a.problems != nil {
		a.problems.Conditions(conditions)
	}
	a.cluster.set(conditions)
}

// poke makes sure that run looks at the engine by its next deadline. Waking run for each event
// would cost more than the event.
func (a *pipeline) poke() {
	if due, ok := a.engine.NextDeadline(); !ok || due.Boot >= a.armed {
		return
	}
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// SaveEvery is how often the engine's state is saved. It bounds what a restart replays from the journal.
const SaveEvery = 30 * time.Second

// lastSaveWithin is how long the last save waits for the state disk.
const lastSaveWithin = 5 * time.Second

// run advances the engine's time and saves its state until ctx ends.
func (a *pipeline) run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	nextSave := hostfs.BootTime() + SaveEvery
	saved := make(chan error, 1) // result of the save in progress
	saving := false
	for {
		select {
		case <-ctx.Done():
			a.flush()
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastSaveWithin)
			defer cancel()
			return a.save(last)
		case err := <-saved:
			if err != nil {
				a.log.Error("state not saved", "error", err)
			}
			saving = false
		case <-a.wake:
		case <-timer.C:
			a.tick()
			a.measure()
		}
		now := hostfs.BootTime()
		if !saving && now >= nextSave {
			saving = true
			go func() { saved <- a.save(ctx) }() // the disk may hang, but time must go on
			nextSave = now + SaveEvery
		}
		next := now + hostfs.UntilBeat(5*time.Second) // bounds the age of gauges
		a.mu.Lock()
		if d, ok := a.engine.NextDeadline(); ok && d.Boot < next {
			next = d.Boot
		}
		a.armed = next
		a.mu.Unlock()
		a.beat.Store(int64(now))
		timer.Reset(max(next-hostfs.BootTime(), 10*time.Millisecond))
	}
}

func (a *pipeline) measure() {
	a.mu.Lock()
	problems, stats := a.engine.Problems(), a.engine.Stats()
	a.mu.Unlock()
	if hangs := a.diskHangs(); hangs != a.hung {
		a.hung = hangs
		select {
		case a.recheck <- struct{}{}:
		default:
		}
	}
	a.metrics.Firing(a.firing(problems))
	a.metrics.Rules(stats.EvalErrors, stats.Overflow, stats.Limited)
	a.metrics.Roomless(stats.Sources)
	if stats.Sources > 0 && a.roomless == 0 {
		a.log.Warn("too many sources: conditions that need this one are Unknown", "source", stats.Source, "limit", detector.MaxStems)
	}
	a.roomless = stats.Sources
}

// firing returns the problems that fire and are not muted. Subjects that are pods have the pod's name.
func (a *pipeline) firing(problems []problem.Problem) (out []problem.Problem) {
	for _, p := range problems {
		if p.State != problem.Firing || !p.MutedUntil.IsZero() {
			continue
		}
		if p.Pod != "" {
			p.Subject = "pod " + a.podName(p.Pod)
		}
		p.Subject = display.Bounded(p.Subject, maxSubject)
		out = append(out, p)
	}
	return out
}

// maxSubject bounds a subject used as a label value, in bytes. A pod's namespace and name fit.
const maxSubject = 330

// hangsAfter is how long the state disk may take before the agent reports that it hangs. A busy
// disk takes a second or two.
const hangsAfter = 5 * time.Second

func (a *pipeline) diskHangs() bool { return a.journal.Stats().Late >= hangsAfter }

// stuckAfter is how old the last beat may be. Beats come every five seconds.
const stuckAfter = 20 * time.Second

func (a *pipeline) check() error {
	at := a.beat.Load()
	if ago := hostfs.BootTime() - time.Duration(at); at != 0 && ago > stuckAfter {
		return fmt.Errorf("the engine has made no progress for %s", ago.Round(time.Second))
	}
	return nil
}
