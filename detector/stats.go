package detector

// Stats holds the engine's counts since its creation. The maps contain only
// rules with a count above 0 and belong to the caller.
type Stats struct {
	Evaluations uint64            `json:"evaluations"`          // of when and clearWhen
	Duplicates  uint64            `json:"duplicates"`           // kernel records seen before and ignored
	EvalErrors  map[string]uint64 `json:"evalErrors,omitempty"` // by rule: expressions that failed (they don't match; in a message they show as ?)
	Overflow    map[string]uint64 `json:"overflow,omitempty"`   // by rule: events counted in the overflow group
	Limited     map[string]uint64 `json:"limited,omitempty"`    // by rule: events beyond its RateLimit
	// Sources is how many state events were dropped because of [MaxStems]; Source is the stem
	// of the latest.
	Sources uint64 `json:"sources,omitempty"`
	Source  string `json:"source,omitempty"`
	// Log lines: how often each pattern matched, by the names in [RuleSet.PatternSet], and the
	// events that no pattern matched (sent for the patterns of other rules, or cut).
	Matches   map[string]uint64 `json:"matches,omitempty"`
	Unmatched uint64            `json:"unmatched,omitempty"`
}

// Stats returns the counts so far.
func (e *Engine) Stats() Stats {
	s := Stats{Evaluations: e.evaluations, Duplicates: e.duplicates, EvalErrors: make(map[string]uint64), Overflow: make(map[string]uint64), Limited: make(map[string]uint64), Matches: e.logs.counts(), Unmatched: e.logs.unmatched, Sources: e.roomless, Source: e.lastRoomless}
	for _, r := range e.rules {
		if r.errors > 0 {
			s.EvalErrors[r.Name] = r.errors
		}
		if r.overflow > 0 {
			s.Overflow[r.Name] = r.overflow
		}
		if r.limited > 0 {
			s.Limited[r.Name] = r.limited
		}
	}
	return s
}
