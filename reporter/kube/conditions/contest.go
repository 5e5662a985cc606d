package conditions

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	kjson "sigs.k8s.io/json"

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
	if e.yielded(now) || writer == Controller || writer == FieldManager && now.Before(e.late) {
		return false
	}
	e.manager = writer
	e.flips = slices.DeleteFunc(e.flips, func(at time.Time) bool { return now.Sub(at) > flipWindow })
	e.flips = append(e.flips, now)
	return true
}

// spokenFor reports whether the controller last wrote a type.
func (l *ledger) spokenFor(name string) bool {
	return l.node != nil && writerOf(l.node, name) == Controller
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
		parts = append(parts, name+" is written by "+cmp.Or(l.entries[name].manager, "another client"))
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
	since := e.want.LastTransition
	if !e.wanted {
		since = now
	}
	e.wanted = true
	e.want = problem.Condition{
		Type: Contested, Status: problem.True, Reason: reasonAnotherWriter, LastTransition: since,
		Message: plain(strings.Join(parts, "; ")),
	}
}

// writerOf returns the field manager that last wrote a condition's status, reason or message. If
// several managers own one of these fields, it prefers one that is not us. It returns "" if the
// Node does not show the writer, for example after the condition was removed.
func writerOf(node *corev1.Node, conditionType string) string {
	key := "k:{\"type\":" + strconv.Quote(conditionType) + "}"
	var writer string
	var newest time.Time
	for i := range node.ManagedFields {
		m := &node.ManagedFields[i]
		if m.FieldsV1 == nil || !owns(m.FieldsV1.GetRawBytes(), key) {
			continue
		}
		var at time.Time
		if m.Time != nil {
			at = m.Time.Time
		}
		if writer == "" || writer == FieldManager || m.Manager != FieldManager && at.After(newest) {
			writer, newest = m.Manager, at
		}
	}
	return writer
}

// owns reports whether a set of fields includes the condition's status, reason or message. Times
// don't count: a heartbeat claims nothing.
func owns(fields []byte, key string) bool {
	var of struct {
		Status struct {
			Conditions map[string]map[string]any `json:"f:conditions"`
		} `json:"f:status"`
	}
	if kjson.UnmarshalCaseSensitivePreserveInts(fields, &of) != nil {
		return false
	}
	owned := of.Status.Conditions[key]
	return owned["f:status"] != nil || owned["f:reason"] != nil || owned["f:message"] != nil
}
