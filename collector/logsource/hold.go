package logsource

import (
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/logs"
)

// holdFor is how long a kernel line is held back. The kernel often prints a line a moment before
// it reaches the hook where a probe detects the same fault, and the probe knows more: its event
// should come first.
const holdFor = 500 * time.Millisecond

// releaseEvery is the minimum time between two releases: in a storm of faults each line would
// otherwise have its own, and waking up costs more than reporting the line.
const releaseEvery = 100 * time.Millisecond

// held is an event that is held back until due.
type held struct {
	ev   event.Event
	data event.LogData
	due  time.Time
}

// emitEvent emits the line's event, or holds it back. Events after a held one wait as well, so
// that lines keep their order.
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

// emitAllHeld emits all held events, because a position after them is about to be saved or the
// source ends.
func (l *source) emitAllHeld() {
	if len(l.held) == 0 {
		return
	}
	l.release.Stop()
	l.emitHeld(time.Now().Add(holdFor)) // no event waits longer
}
