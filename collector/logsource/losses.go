package logsource

import (
	"maps"
	"slices"
	"time"

	"github.com/kernosis/kernosis/collector/logs"
)

// Lost is how often lines were lost for one reason.
type Lost struct {
	Times uint64
	Lines uint64 // as far as it is known how many
}

// Stats is what one log has counted. Lines that came are Matched, Skipped, or
// matched by nothing; those in Lost did not come.
type Stats struct {
	Name, Plugin string

	Lines, Bytes uint64
	Matched      uint64 // lines that a pattern matched
	Skipped      uint64 // lines of an earlier boot, or of the beginning of this one
	Cut          uint64 // lines of which the end was not looked at
	Lost         map[logs.Reason]Lost
	SaveErrors   uint64 // times that the position could not be saved
}

func (l *source) statsNow() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.stats
	s.Lost = maps.Clone(l.losses.total)
	return s
}

// losses collects what is lost until it is reported.
type losses struct {
	total      map[logs.Reason]Lost
	unreported map[logs.Reason]uint64
	reportedAt time.Time
}

type lossOf struct {
	reason logs.Reason
	lines  uint64
}

func newLosses() losses {
	return losses{total: make(map[logs.Reason]Lost), unreported: make(map[logs.Reason]uint64)}
}

func (l *losses) add(reason logs.Reason, lines uint64) {
	t := l.total[reason]
	l.total[reason] = Lost{Times: t.Times + 1, Lines: t.Lines + lines}
	l.unreported[reason] += lines
}

// take returns the losses that are not reported yet, by reason, and marks them as reported.
func (l *losses) take() []lossOf {
	out := make([]lossOf, 0, len(l.unreported))
	for _, reason := range slices.Sorted(maps.Keys(l.unreported)) {
		out = append(out, lossOf{reason, l.unreported[reason]})
	}
	clear(l.unreported)
	return out
}
