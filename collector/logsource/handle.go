package logsource

import (
	"bytes"
	"maps"
	"slices"
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
	"github.com/kernosis/kernosis/collector/logs"
)

// handle processes a line or a loss from the reader.
func (l *source) handle(item logs.Item) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.streams.use(l.patterns.Load())
	if item.Loss != nil {
		l.lost(item.Loss)
		l.items++
		return nil
	}
	if l.wantSave && len(l.held) == 0 || l.events >= saveEvents {
		l.save()
	}
	l.line(item.Line)
	l.items++
	return nil
}

// line counts a line, and reports it if a pattern matches.
func (l *source) line(line *logs.Line) {
	l.stats.Lines++
	l.stats.Bytes += uint64(len(line.Text))
	if l.tooEarly(line) {
		l.stats.Skipped++
		return
	}
	if l.cfg.Plugin == Crash && line.Seq == 1 {
		l.streams.forget() // another record begins
	}
	matcher := l.streams.of(line)
	cut, matched := false, false
	text := line.Text
	for part, more := uint32(0), true; more; part++ {
		var one []byte
		one, text, more = bytes.Cut(text, []byte{'\n'})
		if matcher.Match(one, &l.hits) {
			matched = true
			l.handleLine(line, part)
		}
		cut = cut || l.hits.Cut
	}
	if matched {
		l.stats.Matched++
	}
	if cut {
		l.stats.Cut++
	}
}

// tooEarly reports whether the line is from an earlier boot, or from the first Delay of this one.
// If the line has only a wall clock time, the clock as it is set now decides. It is read once per
// tick, and for each line that seems to be too early.
func (l *source) tooEarly(line *logs.Line) bool {
	if l.cfg.Plugin == Crash {
		return false // its reader decides how old a record may be
	}
	if line.BootTime != 0 || l.cfg.Plugin == KMsg {
		return line.BootTime < l.cfg.Delay
	}
	if l.earliest.IsZero() || line.Time.Before(l.earliest) {
		wall, boot := l.now()
		l.earliest = wall.Add(l.cfg.Delay - boot)
	}
	return line.Time.Before(l.earliest)
}

// handleLine reports the matcher's hits as an event.
func (l *source) handleLine(line *logs.Line, part uint32) {
	context := l.hits.Hits[0].Context
	for _, h := range l.hits.Hits[1:] {
		if len(h.Context) > len(context) {
			context = h.Context // all of them end with the line
		}
	}
	l.data = event.LogData{
		Log: l.cfg.Name, Origin: line.Author(), Unit: line.Unit, Priority: line.Priority,
		Seq: line.Seq, Part: part, Stamp: event.Duration(line.Stamp), Text: event.LogText(string(context)),
	}
	l.ev = event.Event{
		Kind: event.Log, Time: line.Time, BootTime: event.Duration(line.BootTime), CPU: event.NoCPU,
		Source: l.stem, Log: &l.data,
	}
	l.events++
	l.emitEvent(line)
}

// lost counts a loss and reports it.
func (l *source) lost(loss *logs.Loss) {
	if loss.Reason == logs.TooLong && loss.Bytes > 0 {
		// The line itself was handed over; only its end is missing.
		l.stats.Cut++
		return
	}
	l.streams.forget() // the next line does not directly follow the last one
	total := l.stats.Lost[loss.Reason]
	l.stats.Lost[loss.Reason] = Lost{Times: total.Times + 1, Lines: total.Lines + loss.Lines}
	l.unreported[loss.Reason] += loss.Lines
	l.emitLosses(time.Now())
}

// emitLosses reports the losses since the last report, at most once in tickEvery.
func (l *source) emitLosses(now time.Time) {
	if now.Sub(l.lossesReported) >= tickEvery {
		l.emitAllLosses(now)
	}
}

func (l *source) emitAllLosses(now time.Time) {
	if len(l.unreported) == 0 {
		return
	}
	l.lossesReported = now
	for _, reason := range slices.Sorted(maps.Keys(l.unreported)) {
		lines := l.unreported[reason]
		l.o.Log.Warn("lines were lost", "reason", reason, "lines", lines)
		l.emit(hostfs.Stamped(event.Event{
			Kind: event.Lost, Source: l.stem, Lost: &event.LostData{Stem: l.stem, Count: lines, Reason: string(reason)},
		}))
	}
	clear(l.unreported)
}

// holdFor is how long a kernel line is held back. The kernel often prints a line before it reaches the
// hook where a probe detects the same fault. The probe's event has more details, so it should come
// first.
const holdFor = 500 * time.Millisecond

// releaseEvery is the minimum time between two releases. Otherwise each line of a storm of faults
// would have a release of its own, and waking up costs more than reporting the line.
const releaseEvery = 100 * time.Millisecond

// held is an event that is held back until due.
type held struct {
	ev   event.Event
	data event.LogData
	due  time.Time
}

// emitEvent emits the line's event, or holds it back behind others, so that lines keep their order.
func (l *source) emitEvent(line *logs.Line) {
	due := line.Time.Add(holdFor)
	if l.cfg.Plugin == File {
		due = due.Add(time.Second) // syslog's traditional times are whole seconds
	}
	wait := min(time.Until(due), holdFor) // a clock may be wrong
	if line.Origin != event.OriginKernel {
		wait = 0
	}
	if wait <= 0 && len(l.held) == 0 {
		l.emit(&l.ev)
		return
	}
	l.held = append(l.held, held{l.ev, l.data, time.Now().Add(wait)})
	if len(l.held) == 1 {
		l.release = time.AfterFunc(wait, l.released)
	}
}

// released reports the events that are due.
func (l *source) released() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.emitHeld(time.Now())
	if len(l.held) > 0 {
		l.release = time.AfterFunc(max(time.Until(l.held[0].due), releaseEvery), l.released)
	}
}

// emitHeld reports held events in order, up to the first one that is not due.
func (l *source) emitHeld(now time.Time) {
	n := 0
	for ; n < len(l.held) && !l.held[n].due.After(now); n++ {
		h := &l.held[n]
		h.ev.Log = &h.data
		l.emit(&h.ev)
	}
	l.held = l.held[:copy(l.held, l.held[n:])]
}

// emitAllHeld emits all held events, before a position after them is saved.
func (l *source) emitAllHeld() {
	if len(l.held) == 0 {
		return
	}
	l.release.Stop()
	l.emitHeld(time.Now().Add(holdFor)) // no event waits longer
}
