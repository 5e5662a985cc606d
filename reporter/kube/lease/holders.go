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
	// maxHolders bounds the agents of one node that a Lease lists: usually one, or two while one takes
	// over from the other, plus agents that have just ended.
	maxHolders = 8
	// maxHolder is the limit of the holder in a Diagnosis' checkpoint.
	maxHolder = 256
	// maxHeard bounds the agents that are remembered after a Lease no longer lists them.
	maxHeard = 32
)

// holdersIn returns the agents that a Lease lists, by their holder name in Diagnoses, each with
// the stamp of its last renewal. Only a change of the stamp means anything, not its value.
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

// Holders tracks which agents of one node are alive, from the Leases that it gets. It uses the local
// clock: an agent is alive while its stamp changes, regardless of the value. The zero value is ready to
// use.
type Holders struct{ heard map[string]sign }

// sign is an agent's last sign of life.
type sign struct {
	stamp string
	at    time.Time // when the stamp was first seen
}

// See records the current Lease.
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

// Heard returns when a renewal of an agent was last detected; zero: never.
func (h *Holders) Heard(holder string) time.Time { return h.heard[holder].at }

// Gone reports whether another agent of the node, which holds a Diagnosis, is known to have ended. That
// is so if, since the first call for it, that agent has not renewed the Lease for the time after which
// agents count as silent, while this agent has renewed it. While the API server is unavailable, no
// agent is gone. Gone does not block, and returns false for a nil Keeper.
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

// maxAsked bounds the holders that Gone remembers. There are at most as many as Diagnoses of
// other agents.
const maxAsked = 1024

// silence is how long to wait for an agent, as the controller does: a quarter longer than the
// Lease's duration.
func (k *Keeper) silence() time.Duration { return k.config.Duration + k.config.Duration/4 }

// see records the Lease from a response. renewed is when an accepted renewal was sent; zero: the
// Lease was only read.
func (k *Keeper) see(l *coordinationv1.Lease, renewed time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.holders.See(l, time.Now())
	if !renewed.IsZero() {
		k.renewed = renewed
	}
}

// list returns the value of [AnnotationHolders]: this agent with a new stamp, and others that are
// not known to be silent.
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
