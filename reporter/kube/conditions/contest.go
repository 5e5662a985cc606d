package conditions

import (
	"slices"
	"strings"
	"time"

	"github.com/kernosis/kernosis/detector/problem"
)

// Contested is the type of the condition that is True while types of ours are yielded to other
// clients. It is on the Node only then.
const Contested = "KernosisConditionContested"

// reasonAnotherWriter is the reason of [Contested]. Reasons are API.
const reasonAnotherWriter = "AnotherWriter"

// flip records that another client overwrote a type, and reports whether that counts.
func (l *ledger) flip(e *entry, name string, now time.Time) bool {
	e.ours = false
	writer := writerOf(l.node, name)
	if e.yielded(now) || slices.Contains(l.allied, writer) || writer == FieldManager && now.Before(e.late) {
		return false
	}
	e.manager = writer
	e.flips = slices.DeleteFunc(e.flips, func(at time.Time) bool { return now.Sub(at) > flipWindow })
	e.flips = append(e.flips, now)
	return true
}

// spokenFor reports whether an ally last wrote a type.
func (l *ledger) spokenFor(name string) bool {
	return l.node != nil && slices.Contains(l.allied, writerOf(l.node, name))
}

// yield yields a type if the other writer insists on it, and reports whether it does.
func (e *entry) yield(now time.Time, lasts time.Duration) bool {
	if len(e.flips) < maxFlips {
		return false
	}
	e.until, e.flips = now.Add(lasts), nil
	return true
}

// yields returns the types that are currently yielded, sorted.
func (l *ledger) yields(now time.Time) []string {
	var out []string
	for name, e := range l.entries {
		if e.yielded(now) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// announce updates the condition [Contested] from the yielded types.
func (l *ledger) announce(now time.Time) {
	var parts []string
	for _, name := range l.yields(now) {
		if name == Contested {
			continue
		}
		who := l.entries[name].manager
		if who == "" {
			who = "another client"
		}
		parts = append(parts, name+" is written by "+who)
	}
	e := l.entries[Contested]
	if len(parts) == 0 {
		if e != nil {
			e.wanted = false
		}
		return
	}
	if e == nil {
		e = &entry{}
		l.entries[Contested] = e
	}
	message := plain(strings.Join(parts, "; "))
	if !e.wanted {
		e.want.LastTransition = now
	}
	e.wanted = true
	e.want = problem.Condition{
		Type: Contested, Status: problem.True, Reason: reasonAnotherWriter, Message: message, LastTransition: e.want.LastTransition,
	}
}
