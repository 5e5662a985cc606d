package conditions

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/kernosis/kernosis/detector/problem"
)

// entry is one condition type: its wanted state and its state in the API.
type entry struct {
	want   problem.Condition
	wanted bool // set by the detector; otherwise it is to be removed

	known   bool // present and api are known
	present bool // the API has it
	api     corev1.NodeCondition
	ours    bool              // in this Node object it is as this run wrote or found it
	sent    problem.Condition // in the last write, even if its answer was lost
	sentAt  time.Time         // when sent was first tried; zero: it has been answered
	late    time.Time         // until then the API may still execute a write that had no answer

	blocked time.Time // refused by the API: not tried again before

	flips   []time.Time // when others overwrote it, the newest last; at most maxFlips
	until   time.Time   // yielded to manager until then
	manager string
}

func (e *entry) yielded(now time.Time) bool { return now.Before(e.until) }

// asWanted reports whether the API has the wanted condition.
func (e *entry) asWanted() bool { return e.present && says(&e.api, &e.want) }

// says reports whether the API's condition equals c, apart from times.
func says(api *corev1.NodeCondition, c *problem.Condition) bool {
	return string(api.Status) == string(c.Status) && api.Reason == c.Reason && api.Message == c.Message
}

// ledger has the entries of all types. It is used by one goroutine.
type ledger struct {
	start time.Time

	entries map[string]*entry
	listed  bool // the detector has given a list
	seen    bool // the API has delivered the Node
	uid     types.UID
	version string
	node    *corev1.Node // conditions and managed fields as last seen; nil: not seen
}

// entry returns a type's entry, which it adds if there is none.
func (l *ledger) entry(name string) *entry {
	e := l.entries[name]
	if e == nil {
		e = &entry{known: l.seen}
		e.api, e.present = l.find(name)
		l.entries[name] = e
	}
	return e
}

// set applies the detector's latest list.
func (l *ledger) set(list []problem.Condition) {
	l.listed = true
	for name, e := range l.entries {
		e.wanted = name == Contested && e.wanted
	}
	for _, c := range list {
		e := l.entry(c.Type)
		if c.Status != e.want.Status {
			e.blocked = time.Time{} // the API may accept the new status
		}
		e.want, e.wanted = c, true
	}
}

// find returns a condition of the Node as last seen.
func (l *ledger) find(name string) (corev1.NodeCondition, bool) {
	if l.node != nil {
		for _, c := range l.node.Status.Conditions {
			if string(c.Type) == name {
				return c, true
			}
		}
	}
	return corev1.NodeCondition{}, false
}

// urgent reports whether a condition is True, which is written without delay.
func (l *ledger) urgent() bool {
	for _, e := range l.entries {
		if e.wanted && e.want.Status == problem.True {
			return true
		}
	}
	return false
}

// held reports whether a type must wait: Unknown must not replace the status of an earlier run
// before the sources have had time to come up.
func (l *ledger) held(e *entry, now time.Time) bool {
	return !e.ours && e.present && e.want.Status == problem.Unknown && e.api.Status != corev1.ConditionUnknown &&
		now.Before(l.start.Add(holdUnknown))
}

// due returns the types to write and those to remove, sorted, and when that may change without an
// event; zero: never.
func (l *ledger) due(now time.Time) (write, remove []string, again time.Time) {
	for name, e := range l.entries {
		switch {
		case e.yielded(now):
			again = sooner(again, e.until)
		case e.wanted && e.asWanted():
			e.ours = true
		case now.Before(e.blocked):
			again = sooner(again, e.blocked)
		case e.wanted && l.held(e, now):
			again = sooner(again, l.start.Add(holdUnknown))
		case e.wanted:
			write = append(write, name)
		case !e.wanted && l.listed && e.known && e.present:
			remove = append(remove, name)
		}
	}
	slices.Sort(write)
	slices.Sort(remove)
	return write, remove, again
}

// refuses reports whether a type waits because the API has refused it.
func (l *ledger) refuses(now time.Time) bool {
	for _, e := range l.entries {
		if now.Before(e.blocked) && !(e.wanted && e.asWanted()) {
			return true
		}
	}
	return false
}

// sooner returns the earlier of two times; zero means never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// forget drops types that are not wanted and not in the API, and those that another client has
// taken over.
func (l *ledger) forget() {
	maps.DeleteFunc(l.entries, func(name string, e *entry) bool {
		return l.listed && !e.wanted && e.known && (!e.present || !e.ours && !l.wasOurs(name))
	})
}

// types returns the types that we have, or are about to have, in the API.
func (l *ledger) types() []string { return slices.Sorted(maps.Keys(l.entries)) }

// try records that a type's wanted condition is being sent. A retry keeps the time of the first
// try: if only the answer was lost, the API server finds nothing changed and writes nothing.
func (l *ledger) try(name string, heartbeat bool, now time.Time) {
	if e := l.entries[name]; heartbeat || e.sentAt.IsZero() || e.sent != e.want {
		e.sent, e.sentAt = e.want, now
	}
}

// condition returns a type's condition for the patch; call try first.
func (l *ledger) condition(name string) corev1.NodeCondition {
	e := l.entries[name]
	since := e.want.LastTransition
	if e.present && string(e.api.Status) == string(e.want.Status) && !e.api.LastTransitionTime.IsZero() {
		since = e.api.LastTransitionTime.Time // it has had this status since then
	}
	if since.IsZero() {
		since = e.sentAt
	}
	return corev1.NodeCondition{
		Type: corev1.NodeConditionType(name), Status: corev1.ConditionStatus(e.want.Status), Reason: e.want.Reason, Message: e.want.Message,
		LastHeartbeatTime: metav1.NewTime(e.sentAt), LastTransitionTime: metav1.NewTime(since),
	}
}

// stale reports whether the Node is not newer than the one already seen.
func (l *ledger) stale(node *corev1.Node) bool {
	if !l.seen || node.UID != l.uid {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(node.ResourceVersion, l.version)
	return err == nil && order <= 0
}

// unanswered records that a write of these types had no answer.
func (l *ledger) unanswered(names []string, now time.Time) {
	for _, name := range names {
		l.entries[name].late = now.Add(lateFor)
	}
}

// observe records the API's state. If node is the answer to a write, mine are the types that were
// written. It returns the types that others have overwritten, without those already yielded.
func (l *ledger) observe(node *corev1.Node, mine []string, now time.Time) (flipped []string) {
	same := l.seen && node.UID == l.uid
	l.seen, l.uid, l.version = true, node.UID, node.ResourceVersion
	l.node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{ManagedFields: node.ManagedFields}}
	l.node.Status.Conditions = node.Status.Conditions
	for name, e := range l.entries {
		api, present := l.find(name)
		if !same {
			e.ours = false // another Node object: nobody has overwritten anything
		}
		changed := present != e.present || api.Status != e.api.Status || api.Reason != e.api.Reason || api.Message != e.api.Message
		was := e.ours
		e.api, e.present, e.known = api, present, true
		switch {
		case slices.Contains(mine, name):
			e.ours, e.sentAt = e.wanted, time.Time{}
		case present && (says(&api, &e.want) || says(&api, &e.sent)):
			// A write of ours whose answer was lost, or a write of another client with the same
			// content.
			e.sentAt = time.Time{}
		case was && changed && l.flip(e, name, now):
			flipped = append(flipped, name)
		}
	}
	slices.Sort(flipped)
	return flipped
}

// wasOurs reports whether we or the controller last wrote a type's status, as far as the Node shows.
func (l *ledger) wasOurs(name string) bool {
	writer := writerOf(l.node, name)
	return writer == "" || writer == FieldManager || writer == Controller
}

// lose records that the Node was deleted.
func (l *ledger) lose() {
	l.seen, l.uid, l.version, l.node = false, "", "", nil
	for _, e := range l.entries {
		e.known, e.present, e.ours = false, false, false
	}
}
