package trigger

import "maps"

// Why a Diagnosis that a trigger asks for is not made.
const (
	WithheldCooldown      = "cooldown"      // the subject had one a short while ago
	WithheldRateLimit     = "rateLimit"     // the trigger has made too many
	WithheldSame          = "sameEpisode"   // the subject's episode has one
	WithheldMuted         = "muted"         // the problem is; counted once an episode
	WithheldSuppressed    = "suppressed"    // the problem is hidden by its cause; counted once an episode
	WithheldUnknownPod    = "unknownPod"    // there is no such pod, or namespace and labels of the pod are not known
	WithheldUnknownNode   = "unknownNode"   // there is no such node
	WithheldNoTarget      = "noTarget"      // neither source nor trigger name a node or pod
	WithheldInvalidTarget = "invalidTarget" // what the source names can be no node or pod
	WithheldOld           = "old"           // an Event of long ago
	WithheldFuture        = "future"        // it begins later than now
)

// Counts are those of a trigger since the engine was made, or the trigger put in force.
type Counts struct {
	Started  uint64            // Diagnoses that were wanted
	Withheld map[string]uint64 // by reason
}

// Stats are what an engine has counted.
type Stats struct {
	Triggers map[string]Counts // by name
	Streams  int               // remembered at present
	Subjects int
	// ForgottenEarly are subjects that were forgotten, for want of room, while their
	// cooldown lasted.
	ForgottenEarly uint64
}

// Stats returns what was counted.
func (e *Engine) Stats() Stats {
	s := Stats{Triggers: make(map[string]Counts, len(e.stats)), Streams: e.streams.Len(), Subjects: e.subjects.Len(), ForgottenEarly: e.early}
	for name, c := range e.stats {
		s.Triggers[name] = Counts{Started: c.Started, Withheld: maps.Clone(c.Withheld)}
	}
	return s
}

func (e *Engine) withhold(m *Matcher, why string) { e.stats[m.name].Withheld[why]++ }
