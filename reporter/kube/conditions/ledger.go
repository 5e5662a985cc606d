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

// entry is one condition type: what it should be, and what the API has.
type entry struct {
	want   problem.Condition
	wanted bool // somebody sets it; else it is to be removed

	known   bool // the API has reported whether it has it
	present bool // it has
	api     corev1.NodeCondition
	ours    bool              // it is as this run wrote it, or found it, in this Node object
	sent    problem.Condition // by the last write, whether its answer came or not
	sentAt  time.Time         // when sent was first tried; zero: its answer has come

	blocked time.Time // the API refuses it: not tried again before

	flips   []time.Time // when others wrote over it, the newest last; at most maxFlips
	until   time.Time   // it is left to manager until then
	manager string
}

func (e *entry) yielded(now time.Time) bool { return now.Before(e.until) }

// asWanted reports whether the API has what is wanted.
func (e *entry) asWanted() bool { return e.present && says(&e.api, &e.want) }

// says reports whether the API's form of a condition says the same. Times do not
// count.
func says(api *corev1.NodeCondition, c *problem.Condition) bool {
	return string(api.Status) == string(c.Status) && api.Reason == c.Reason && api.Message == c.Message
}

// ledger has all types. It is for one goroutine.
type ledger struct {
	allied []string
	start  time.Time

	entries map[string]*entry
	listed  bool // the detector has given a list
	seen    bool // the API has shown the Node
	uid     types.UID
	version string
	node    *corev1.Node // as it was shown, without what is big; nil: not seen
}

// set takes the detector's latest list.
func (l *ledger) set(list []problem.Condition) {
	l.listed = true
	for name, e := range l.entries {
		e.wanted = name == Contested && e.wanted
	}
	for _, c := range list {
		e := l.entries[c.Type]
		if e == nil {
			e = &entry{known: l.seen}
			e.api, e.present = l.find(c.Type)
			l.entries[c.Type] = e
		}
		if c.Status != e.want.Status {
			e.blocked = time.Time{} // what was refused of the other may be taken of this
		}
		e.want, e.wanted = c, true
	}
}

// find returns a condition of the Node as it was last seen.
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

// urgent reports whether a condition is True, which waits for nothing.
func (l *ledger) urgent() bool {
	for _, e := range l.entries {
		if e.wanted && e.want.Status == problem.True {
			return true
		}
	}
	return false
}

// held reports whether a type waits: Unknown does not replace what an earlier run
// reported before the sources have had time to come up.
func (l *ledger) held(e *entry, now time.Time) bool {
	return !e.ours && e.present && e.want.Status == problem.Unknown && e.api.Status != corev1.ConditionUnknown &&
		now.Before(l.start.Add(holdUnknown))
}

// due returns the types to write and those to remove, sorted, and when that may
// change by itself; zero: never.
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

// sooner returns the earlier of two times; zero is never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// forget drops types that nobody wants and the API does not have, and those that
// somebody else has taken over.
func (l *ledger) forget() {
	maps.DeleteFunc(l.entries, func(name string, e *entry) bool {
		return l.listed && !e.wanted && e.known && (!e.present || !e.ours && !l.wasOurs(name))
	})
}

// types returns those that we have, or are about to have, in the API.
func (l *ledger) types() []string { return slices.Sorted(maps.Keys(l.entries)) }

// try notes that what is wanted of a type is sent now. A retry keeps the time of the first
// try: if only its answer was lost, the API server finds nothing changed and writes nothing.
func (l *ledger) try(name string, heartbeat bool, now time.Time) {
	if e := l.entries[name]; heartbeat || e.sentAt.IsZero() || e.sent != e.want {
		e.sent, e.sentAt = e.want, now
	}
}

// condition returns how a type is to be written, after try.
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

// stale reports whether the Node is one that we have seen newer.
func (l *ledger) stale(node *corev1.Node) bool {
	if !l.seen || node.UID != l.uid {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(node.ResourceVersion, l.version)
	return err == nil && order <= 0
}

// observe takes what the API has. mine are the types that it has from us by the
// write whose answer this is. It returns the types that others wrote over, but for
// those that are left to them already.
func (l *ledger) observe(node *corev1.Node, mine []string, now time.Time) (flipped []string) {
	same := l.seen && node.UID == l.uid
	l.seen, l.uid, l.version = true, node.UID, node.ResourceVersion
	l.node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{ManagedFields: node.ManagedFields}}
	l.node.Status.Conditions = node.Status.Conditions
	for name, e := range l.entries {
		api, present := l.find(name)
		if !same {
			e.ours = false // another Node object: nobody wrote over anything
		}
		changed := present != e.present || api.Status != e.api.Status || api.Reason != e.api.Reason || api.Message != e.api.Message
		was := e.ours
		e.api, e.present, e.known = api, present, true
		switch {
		case slices.Contains(mine, name):
			e.ours, e.sentAt = e.wanted, time.Time{}
		case present && (says(&api, &e.want) || says(&api, &e.sent)):
			// A write of ours whose answer was lost, or of one who means the same.
			e.sentAt = time.Time{}
		case was && changed && l.flip(e, name, now):
			flipped = append(flipped, name)
		}
	}
	slices.Sort(flipped)
	return flipped
}

// wasOurs reports whether a type's status was last written by us or an ally, as far
// as the Node shows.
func (l *ledger) wasOurs(name string) bool {
	writer := writerOf(l.node, name)
	return writer == "" || writer == FieldManager || slices.Contains(l.allied, writer)
}

// lose notes that the Node was deleted.
func (l *ledger) lose() {
	l.seen, l.uid, l.version, l.node = false, "", "", nil
	for _, e := range l.entries {
		e.known, e.present, e.ours = false, false, false
	}
}
