package lease

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

const (
	// maxHolders bounds the agents of one node that a Lease lists: one, or two while one
	// takes over from the other, and those that have ended a moment ago.
	maxHolders = 8
	// maxHolder is that of a Diagnosis' checkpoint.
	maxHolder = 256
	// maxHeard bounds the agents that are remembered once a Lease lists them no more.
	maxHeard = 32
)

// holdersIn returns the agents that a Lease lists, by the name that their Diagnoses have
// as holder, each with the stamp of its last renewal. A stamp says nothing but that it has
// changed.
func holdersIn(l *coordinationv1.Lease) map[string]string {
	out := make(map[string]string)
	for one := range strings.SplitSeq(l.Annotations[AnnotationHolders], ",") {
		holder, stamp, ok := strings.Cut(one, "=")
		if ok && holder != "" && len(holder) <= maxHolder && len(out) < maxHolders {
			out[holder] = stamp
		}
	}
	return out
}

// Holders follows which agents of one node live, of the Leases that it is shown. It goes
// by the clock of whoever looks: an agent lives while its stamp changes, whatever the
// stamp says. The zero value has seen none.
type Holders struct{ heard map[string]sign }

// sign is an agent's last one of life.
type sign struct {
	stamp string
	at    time.Time // when it was first seen
}

// See takes a Lease as it is.
func (h *Holders) See(l *coordinationv1.Lease, now time.Time) {
	if h.heard == nil {
		h.heard = make(map[string]sign)
	}
	for holder, stamp := range holdersIn(l) {
		if last, known := h.heard[holder]; !known || last.stamp != stamp {
			h.heard[holder] = sign{stamp, now}
		}
	}
	for len(h.heard) > maxHeard {
		oldest := slices.MinFunc(slices.Collect(maps.Keys(h.heard)), func(a, b string) int {
			return cmp.Or(h.heard[a].at.Compare(h.heard[b].at), cmp.Compare(a, b))
		})
		delete(h.heard, oldest)
	}
}

// Heard returns when an agent was last seen to renew; zero: never.
func (h *Holders) Heard(holder string) time.Time { return h.heard[holder].at }

// Gone reports whether another agent of the node, that holds a Diagnosis, is known to have
// ended: it has not renewed the Lease for as long as others wait before they call an agent
// silent, which is counted from the first question about it, and this agent has renewed it
// all the same. While the API server is away nobody is gone. It does not block, and a nil
// Keeper knows of no end.
func (k *Keeper) Gone(holder string) bool {
	if k == nil {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	if k.renewed.IsZero() || now.Sub(k.renewed) > k.config.Duration {
		return false
	}
	asked, before := k.asked[holder]
	if !before {
		if len(k.asked) >= maxAsked {
			clear(k.asked)
		}
		k.asked[holder] = now
		return false
	}
	if heard := k.holders.Heard(holder); heard.After(asked) {
		asked = heard
	}
	return k.renewed.Sub(asked) >= k.silence()
}

// maxAsked bounds the questions that are remembered. There are as many as Diagnoses of
// other agents, at most.
const maxAsked = 1024

// silence is how long an agent is waited for, as the controller does: a quarter more than
// its Lease says.
func (k *Keeper) silence() time.Duration { return k.config.Duration + k.config.Duration/4 }

// see takes the Lease as a request has given it; renewed is when a renewal that was taken
// was sent, zero: it was only read.
func (k *Keeper) see(l *coordinationv1.Lease, renewed time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.holders.See(l, time.Now())
	if !renewed.IsZero() {
		k.renewed = renewed
	}
}

// list returns the annotation of the agents that run Diagnoses: this one with a new stamp,
// and others that are not known to be silent.
func (k *Keeper) list(l *coordinationv1.Lease, now time.Time) string {
	own := k.config.Holder()
	var out []string
	k.mu.Lock()
	for holder, stamp := range holdersIn(l) {
		if heard := k.holders.Heard(holder); holder != own && now.Sub(heard) < k.silence() {
			out = append(out, holder+"="+stamp)
		}
	}
	k.mu.Unlock()
	slices.Sort(out)
	if own != "" && len(own) <= maxHolder && !strings.ContainsAny(own, ",=") {
		out = append(out[:min(len(out), maxHolders-1)], own+"="+now.UTC().Format(time.RFC3339Nano))
	}
	return strings.Join(out, ",")
}
