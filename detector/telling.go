package detector

import (
	"time"

	"github.com/kernosis/kernosis/collector/event"
)

// telling is how many occurrences of a problem a rule has told of since what was
// counted last was longer ago than sameTelling.
type telling struct {
	Rule string `json:"rule"`
	N    uint64 `json:"n"`
}

// maxTellings bounds the rules that tell of one fault; honest ones are two or three.
const maxTellings = 16

// told takes down that a rule tells of an occurrence, and reports whether another
// one has told of it: whoever has told of most has had them all counted, and what
// others tell of up to that number is the same. Later than sameTelling it is an
// occurrence that the others have missed. n is how many the rule has told of.
func (en *entry) told(r *ruleState, at time.Duration) (again bool, n uint64) {
	if (at - en.toldAt).Abs() > sameTelling {
		en.tellings = en.tellings[:0]
	}
	own, most := -1, uint64(0)
	for i := range en.tellings {
		most = max(most, en.tellings[i].N)
		if en.tellings[i].Rule == r.Name {
			own = i
		}
	}
	if own < 0 {
		if len(en.tellings) == maxTellings {
			return most > 0, 1
		}
		own = len(en.tellings)
		en.tellings = append(en.tellings, telling{Rule: r.Name})
	}
	en.tellings[own].N++
	return en.tellings[own].N <= most, en.tellings[own].N
}

// enrich takes in an event that tells of what is counted already: another
// source's facts are evidence too. Of many one a second is kept, and each source's
// first.
func (en *entry) enrich(ev *event.Event, at event.Moment, n uint64) {
	en.seen(at)
	if n == 1 || (at.Boot-en.kept).Abs() >= evidenceSpacing {
		en.kept = at.Boot
		en.keep(ev)
	}
}
