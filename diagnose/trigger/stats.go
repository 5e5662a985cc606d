package trigger

import "maps"

// Reasons why a trigger's Diagnosis is withheld.
const (
	WithheldCooldown      = "cooldown"      // the subject recently had one
	WithheldRateLimit     = "rateLimit"     // the trigger has created too many
	WithheldSame          = "sameEpisode"   // this episode of the subject already has one
	WithheldMuted         = "muted"         // the problem is muted; counted once per episode
	WithheldSuppressed    = "suppressed"    // the problem is hidden by its cause; counted once per episode
	WithheldUnknownPod    = "unknownPod"    // there is no such pod, or its namespace and labels are not known
	WithheldUnknownNode   = "unknownNode"   // there is no such node
	WithheldNoTarget      = "noTarget"      // neither source nor trigger name a node or pod
	WithheldInvalidTarget = "invalidTarget" // the source names an invalid node or pod
	WithheldOld           = "old"           // an Event that happened too long ago
	WithheldFuture        = "future"        // it begins in the future
)

// Counts are a trigger's counters since the engine was created, or the trigger installed.
type Counts struct {
	Started  uint64            // Diagnoses that were wanted
	Withheld map[string]uint64 // by reason
}

// Stats are an engine's counters.
type Stats struct {
	Triggers map[string]Counts // by name
	Streams  int               // currently remembered
	Subjects int
	// ForgottenEarly are subjects that were evicted during their cooldown, for lack of room.
	ForgottenEarly uint64
}

// Stats returns the counters.
func (e *Engine) Stats() Stats {
	s := Stats{Triggers: make(map[string]Counts, len(e.stats)), Streams: e.streams.Len(), Subjects: e.subjects.Len(), ForgottenEarly: e.early}
	for name, c := range e.stats {
		s.Triggers[name] = Counts{Started: c.Started, Withheld: maps.Clone(c.Withheld)}
	}
	return s
}

func (e *Engine) withhold(m *Matcher, why string) { e.stats[m.name].Withheld[why]++ }
