package detector

import (
	"slices"
	"time"

	"github.com/kernosis/kernosis/collector/event"
)

// burst groups occurrences of a problem that are each at most sameReporting apart, with the
// number that each rule has reported. Its times are since boot.
type burst struct {
	From     time.Duration `json:"from"`
	To       time.Duration `json:"to"`
	Reported []reporting   `json:"told"`
}

// reporting is the number of occurrences in a burst that a rule has reported.
type reporting struct {
	Rule string `json:"rule"`
	N    uint64 `json:"n"`
}

// Bounds of the bursts that a problem remembers.
const (
	// maxReports bounds the rules that report one fault; usually there are two or three.
	maxReports = 16
	// maxBursts bounds the bursts: sources that are read late, as after a restart, report the
	// same bursts one after the other.
	maxBursts = 16
)

// distance returns how far at is from the burst; zero within it.
func (b *burst) distance(at time.Duration) time.Duration { return max(b.From-at, at-b.To, 0) }

// add counts further occurrences that the rule reports. It returns how many the rule has now
// reported, and the most that any rule had reported before.
func (b *burst) add(rule string, further uint64) (n, most uint64) {
	own := -1
	for i := range b.Reported {
		most = max(most, b.Reported[i].N)
		if b.Reported[i].Rule == rule {
			own = i
		}
	}
	if own < 0 {
		if len(b.Reported) == maxReports {
			return further, most
		}
		own = len(b.Reported)
		b.Reported = append(b.Reported, reporting{Rule: rule})
	}
	b.Reported[own].N += further
	return b.Reported[own].N, most
}

// burstAt returns the burst that an occurrence at a time belongs to, or nil.
func (en *entry) burstAt(at time.Duration) *burst {
	var nearest *burst
	for i := range en.Bursts {
		b := &en.Bursts[i]
		if d := b.distance(at); d <= sameReporting && (nearest == nil || d < nearest.distance(at)) {
			nearest = b
		}
	}
	return nearest
}

// countOnce counts occurrences that a rule reports, and returns how many of them are new. All
// occurrences of the rule that has reported the most in a burst were counted. Occurrences that
// other rules report, up to that number, are the same ones. first is true if the rule reports
// the burst for the first time.
func (en *entry) countOnce(r *ruleState, at time.Duration, times uint64) (fresh uint64, first bool) {
	b := en.burstAt(at)
	if b == nil {
		return times, true // counted begins the burst
	}
	n, most := b.add(r.Name, times)
	return n - max(n-times, min(n, most)), n == times
}

// counted extends the burst to include the occurrences, or begins a new burst with them.
func (en *entry) counted(r *ruleState, at time.Duration, times uint64) {
	if b := en.burstAt(at); b != nil {
		b.From, b.To = min(b.From, at), max(b.To, at)
		return
	}
	var b burst
	if len(en.Bursts) == maxBursts {
		b.Reported = en.Bursts[0].Reported[:0]
		en.Bursts = slices.Delete(en.Bursts, 0, 1)
	}
	b.From, b.To = at, at
	b.add(r.Name, times)
	en.Bursts = append(en.Bursts, b)
}

// enrich handles an event that reports occurrences which are already counted: another source's
// facts are evidence too. It keeps one event a second, and the first of each source.
func (en *entry) enrich(r *ruleState, ev *event.Event, at event.Moment, first bool) {
	en.seen(r.level, at)
	if first || (at.Boot-en.Kept).Abs() >= evidenceSpacing {
		en.Kept = at.Boot
		en.keep(ev)
	}
}
