package ingest

import (
	"maps"
	"slices"
	"strings"
	"sync"
)

// Outcome is what became of a report.
type Outcome string

// Outcomes, all but the first refusals.
const (
	Accepted  Outcome = "accepted"
	Invalid   Outcome = "invalid"     // 400, and what is no report at all
	Forbidden Outcome = "forbidden"   // 403: user, source or condition is not configured
	Conflict  Outcome = "conflict"    // 409: the condition is another's
	TooLarge  Outcome = "too-large"   // 413
	RateLimit Outcome = "rate"        // 429
	Closing   Outcome = "unavailable" // 503: the agent starts or ends
)

// Outcomes returns all outcomes.
func Outcomes() []Outcome {
	return []Outcome{Accepted, Invalid, Forbidden, Conflict, TooLarge, RateLimit, Closing}
}

// SourceStats is what has been counted of one source since the start. Source is
// empty for reports whose source is not known.
type SourceStats struct {
	Source   string
	Reports  map[Outcome]uint64
	Events   uint64 // of accepted reports, those sent twice included
	Changes  uint64 // conditions reported because status or reason changed
	Expired  uint64 // conditions that were not reported again in time
	Warnings uint64 // fields that were changed, such as messages that were cut
}

// counters is safe for concurrent use. It has a lock of its own: who reads the
// counts must not wait for the engine.
type counters struct {
	mu      sync.Mutex
	sources map[string]*SourceStats // "": not known
}

func newCounters(sources []Source) *counters {
	c := &counters{sources: map[string]*SourceStats{"": {}}}
	for _, s := range sources {
		c.sources[s.Name] = &SourceStats{Source: s.Name}
	}
	for _, s := range c.sources {
		s.Reports = make(map[Outcome]uint64, len(Outcomes()))
		for _, o := range Outcomes() {
			s.Reports[o] = 0 // a zero is a fact too
		}
	}
	return c
}

// add changes the counts of a source, those of "" where there is no such one.
func (c *counters) add(source string, change func(*SourceStats)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.sources[source]
	if s == nil {
		s = c.sources[""]
	}
	change(s)
}

func (c *counters) stats() []SourceStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]SourceStats, 0, len(c.sources))
	for _, s := range c.sources {
		one := *s
		one.Reports = maps.Clone(s.Reports)
		out = append(out, one)
	}
	slices.SortFunc(out, func(a, b SourceStats) int { return strings.Compare(a.Source, b.Source) })
	return out
}
