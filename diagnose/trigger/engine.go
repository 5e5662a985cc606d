package trigger

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

// Limits of an engine's memory. Of problems, alerts and Events, and of subjects, the least recently
// seen are evicted first.
const (
	maxStreams  = 4096 // each takes some 200 bytes of memory, and 120 of JSON
	maxSubjects = 4096
	maxMatchers = 4096
	// maxCount is the largest count that a rate limit may have.
	maxCount = 1000
)

// Config configures an [Engine].
type Config struct {
	// Node is the agent's node, whose problems these are; empty in the controller.
	Node string
	// Namespace is the system namespace, where the Diagnoses are created.
	Namespace string
	// Clock returns the current time, even while events from before a restart are replayed; nil:
	// time.Now.
	Clock func() time.Time
}

// Engine decides which Diagnoses are wanted. It is not safe for concurrent use. Its only times are
// the now of each call, and the clock of [Config].
type Engine struct {
	cfg      Config
	matchers []*Matcher // by name
	streams  *simplelru.LRU[id, stream]
	subjects *simplelru.LRU[id, subject]
	triggers map[string]*TriggerState
	stats    map[string]*Counts
	now      time.Time // of the latest decision
	early    uint64
	changes  uint64
}

// stream is a problem, alert or Event that is reported repeatedly.
type stream struct {
	ID      id        `json:"id"`
	Episode time.Time `json:"episode"`          // beginning of the latest episode that was decided on
	Rank    int       `json:"rank,omitempty"`   // of a problem: the highest severity that was decided on
	Hidden  bool      `json:"hidden,omitempty"` // of a problem: it was reported while hidden
}

// subject is what a trigger's Diagnoses are about.
type subject struct {
	ID      id            `json:"id"`
	Episode time.Time     `json:"episode"` // of the latest Diagnosis
	Started time.Time     `json:"started"` // when it was wanted
	For     time.Duration `json:"for"`     // its cooldown at that time
}

// TriggerState is what is remembered about a trigger.
type TriggerState struct {
	Name string `json:"name"`
	// Started has when Diagnoses were wanted, within the window of the rate limit.
	Started []time.Time `json:"started,omitempty"`
	// Tenants has the times at which Events of untrusted namespaces started Diagnoses.
	Tenants []tenantStart `json:"tenants,omitempty"`
	// Schedule is a cronTemplate's schedule, Scheduled the time up to which it was handled, and Ran
	// the latest of its times that created a Diagnosis.
	Schedule  string    `json:"schedule,omitempty"`
	Scheduled time.Time `json:"scheduled,omitzero"`
	Ran       time.Time `json:"ran,omitzero"`
}

// tenantStart is when an Event of a namespace that is not trusted started a Diagnosis.
type tenantStart struct {
	Namespace string    `json:"namespace"`
	At        time.Time `json:"at"`
}

// NewEngine returns an engine without triggers.
func NewEngine(cfg Config) (*Engine, error) {
	if cfg.Namespace == "" || !validName(cfg.Namespace, false) {
		return nil, fmt.Errorf("trigger engine: %q is not a namespace name", cfg.Namespace)
	}
	if !validName(cfg.Node, true) {
		return nil, fmt.Errorf("trigger engine: %q is not a node name", cfg.Node)
	}
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	e := &Engine{cfg: cfg, triggers: map[string]*TriggerState{}, stats: map[string]*Counts{}}
	e.streams, _ = simplelru.NewLRU[id, stream](maxStreams, nil) // it fails only without a size
	e.subjects, _ = simplelru.NewLRU(maxSubjects, e.forgotten)
	return e, nil
}

// forgotten counts subjects that are evicted during their cooldown.
func (e *Engine) forgotten(_ id, s subject) {
	if near(e.now, s.Started, s.For) {
		e.early++
	}
}

// Install replaces all triggers. It keeps the state of triggers whose name stays.
func (e *Engine) Install(matchers []*Matcher) error {
	if len(matchers) > maxMatchers {
		return fmt.Errorf("%d triggers, at most %d can be in force", len(matchers), maxMatchers)
	}
	sorted := slices.Clone(matchers)
	slices.SortFunc(sorted, func(a, b *Matcher) int { return strings.Compare(a.name, b.name) })
	triggers, stats := make(map[string]*TriggerState, len(sorted)), make(map[string]*Counts, len(sorted))
	for _, m := range sorted {
		if triggers[m.name] != nil {
			return fmt.Errorf("two triggers are called %q", m.name)
		}
		if m.source == SourceProblem && e.cfg.Node == "" {
			return fmt.Errorf("trigger %q needs problems of a node, which this engine does not have", m.name)
		}
		triggers[m.name], stats[m.name] = e.triggers[m.name], e.stats[m.name]
		if triggers[m.name] == nil {
			triggers[m.name] = &TriggerState{Name: m.name}
		}
		if stats[m.name] == nil {
			stats[m.name] = &Counts{Withheld: map[string]uint64{}}
		}
	}
	e.matchers, e.triggers, e.stats = sorted, triggers, stats
	return nil
}

// over reports whether an episode is older than the latest one of a stream, because it is reported
// late or by the second of two reporters. If the latest one is in the future, the clock was set
// back, and it does not hide others.
func (e *Engine) over(s *stream, episode time.Time) bool {
	return episode.Before(s.Episode) && s.Episode.Sub(e.cfg.Clock()) <= maxAhead
}

// begins reports whether an episode of a stream is new, and records it.
func (e *Engine) begins(key id, episode time.Time) bool {
	s, known := e.streams.Get(key)
	if known && (episode.Equal(s.Episode) || e.over(&s, episode)) {
		return false
	}
	e.streams.Add(key, stream{ID: key, Episode: episode.Round(0).UTC()})
	e.changes++
	return true
}

// occurrence is what a trigger has matched.
type occurrence struct {
	matcher    *Matcher
	subject    string // what cooldown applies to
	hint       string // a readable name, which follows from the subject
	about      string // the subject, for display
	cause      string // what happened, for display
	episode    time.Time
	target     target
	podUID     string // of the pod that a problem is about
	tenant     string // the namespace of an Event, if it is not trusted
	podGone    bool   // there is no such pod
	elsewhere  bool   // the pod is not on the node of the agent that reports it
	parameters v1alpha1.Parameters
	omitted    []string
	cooldown   bool
}

// target is the node or pod that a source names.
type target struct {
	node string
	pod  *v1alpha1.PodReference
}

// decide appends the Diagnosis of an occurrence, or withholds it. Either is final.
func (e *Engine) decide(wanted []*v1alpha1.Diagnosis, o *occurrence, known Known, now time.Time) []*v1alpha1.Diagnosis {
	m := o.matcher
	now = now.Round(0)
	e.now = now
	o.episode = o.episode.Round(0).UTC()
	key := o.key()
	e.subjects.Get(key) // mark as recently seen
	dx, why := e.diagnosis(o)
	if why == "" {
		why = e.against(o, now)
	}
	if why == "" {
		why = known.lacks(o, dx)
	}
	if why != "" {
		e.withhold(m, why)
		return wanted
	}
	e.changes++
	st := e.triggers[m.name]
	st.Started = slices.DeleteFunc(st.Started, func(t time.Time) bool { return !near(now, t, m.within) })
	st.Started = append(st.Started, now.UTC())
	st.Tenants = slices.DeleteFunc(st.Tenants, func(t tenantStart) bool { return !near(now, t.At, m.within) })
	if o.tenant != "" {
		st.Tenants = append(st.Tenants, tenantStart{Namespace: o.tenant, At: now.UTC()})
	}
	s := subject{ID: key, Episode: o.episode, Started: now.UTC()}
	if o.cooldown {
		s.For = m.cooldown
	}
	e.subjects.Add(key, s)
	e.stats[m.name].Started++
	return append(wanted, dx)
}

// against returns the limit that prevents the creation of a Diagnosis; empty: none. It changes
// nothing.
func (e *Engine) against(o *occurrence, now time.Time) (why string) {
	m := o.matcher
	last, known := e.subjects.Peek(o.key())
	switch {
	case known && last.Episode.Equal(o.episode): // two problems that began with the same event
		return WithheldSame
	case known && o.cooldown && near(now, last.Started, m.cooldown):
		return WithheldCooldown
	}
	started, own, tenants := 0, 0, 0
	for _, t := range e.triggers[m.name].Started {
		if near(now, t, m.within) {
			started++
		}
	}
	for _, t := range e.triggers[m.name].Tenants {
		if near(now, t.At, m.within) {
			tenants++
			if t.Namespace == o.tenant {
				own++
			}
		}
	}
	if started >= m.count || o.tenant != "" && Crowded(m.count, own, tenants) {
		return WithheldRateLimit
	}
	return ""
}

// key returns the key under which the subject is remembered.
func (o *occurrence) key() id { return idOf(o.matcher.name, string(o.matcher.source), o.subject) }

// Changes returns a number that grows whenever the memory changes, except for its LRU order. The
// state need only be saved when it has grown.
func (e *Engine) Changes() uint64 { return e.changes }

// near reports whether two times are less than d apart. A future time means that the clock was set
// back; it must not count for longer than a past one.
func near(now, t time.Time, d time.Duration) bool { return now.Sub(t).Abs() < d }
