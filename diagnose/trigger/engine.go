package trigger

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/kernosis/kernosis/diagnose/api/v1alpha1"
)

// Bounds of what an engine remembers.
const (
	defaultStreams  = 4096 // each some 200 bytes of memory, and 120 of JSON
	defaultSubjects = 4096
	maxMatchers     = 4096
	// maxCount is the most that a rate limit may allow within its time.
	maxCount = 1000
)

// Config says whose engine it is. Zero bounds take their defaults.
type Config struct {
	// Node is the agent's, whose problems these are; the controller has none.
	Node string
	// Namespace is the system namespace, in which the Diagnoses are to be made.
	Namespace string
	// MaxStreams bounds the problems, alerts and Events, and MaxSubjects the subjects,
	// that are remembered. Those that were not heard of for longest are forgotten first.
	MaxStreams  int
	MaxSubjects int
	// Clock is what the time is now, also while what happened before a restart is given again;
	// nil: time.Now.
	Clock func() time.Time
}

// Engine decides which Diagnoses are wanted. It is not safe for concurrent use. Of
// time it knows the now of each call, and the clock of [Config].
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

// stream is one problem, alert or Event: what is reported again and again.
type stream struct {
	ID      id        `json:"id"`
	Episode time.Time `json:"episode"`          // the beginning of the latest one that was decided about
	Rank    int       `json:"rank,omitempty"`   // of a problem: the highest severity that was decided about
	Hidden  bool      `json:"hidden,omitempty"` // of a problem: it was reported while it was hidden
}

// subject is what a trigger's Diagnoses are about.
type subject struct {
	ID      id            `json:"id"`
	Episode time.Time     `json:"episode"` // of the latest Diagnosis
	Started time.Time     `json:"started"` // when it was wanted
	For     time.Duration `json:"for"`     // cooldown at that time
}

// TriggerState is what is remembered of a trigger.
type TriggerState struct {
	Name string `json:"name"`
	// Started is when Diagnoses were wanted, within the time of the rate limit.
	Started []time.Time `json:"started,omitempty"`
	// Schedule is a cronTemplate's, Scheduled the time up to which it was seen to, and
	// Ran the latest of its times that made a Diagnosis.
	Schedule  string    `json:"schedule,omitempty"`
	Scheduled time.Time `json:"scheduled,omitzero"`
	Ran       time.Time `json:"ran,omitzero"`
}

// NewEngine returns an engine without triggers.
func NewEngine(cfg Config) (*Engine, error) {
	if cfg.Namespace == "" || !validName(cfg.Namespace, false) {
		return nil, fmt.Errorf("trigger engine: %q is no name of a namespace", cfg.Namespace)
	}
	if !validName(cfg.Node, true) {
		return nil, fmt.Errorf("trigger engine: %q is no name of a node", cfg.Node)
	}
	if cfg.MaxStreams <= 0 {
		cfg.MaxStreams = defaultStreams
	}
	if cfg.MaxSubjects <= 0 {
		cfg.MaxSubjects = defaultSubjects
	}
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	e := &Engine{cfg: cfg, triggers: map[string]*TriggerState{}, stats: map[string]*Counts{}}
	var err, err2 error
	e.streams, err = simplelru.NewLRU[id, stream](cfg.MaxStreams, nil)
	e.subjects, err2 = simplelru.NewLRU(cfg.MaxSubjects, e.forgotten)
	return e, errors.Join(err, err2)
}

// forgotten notes that a subject makes room while its cooldown lasts.
func (e *Engine) forgotten(_ id, s subject) {
	if near(e.now, s.Started, s.For) {
		e.early++
	}
}

// Install puts triggers in force, in place of all others. Of those that stay by name,
// what was remembered stays too.
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
			return fmt.Errorf("trigger %q is about problems of a node, which this engine has none of", m.name)
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

// over reports whether an episode is one before the latest of a stream: it is reported late, or
// by the second of two that report one thing. A latest one that is still to come began by a
// clock that was set back since, and hides none.
func (e *Engine) over(s *stream, episode time.Time) bool {
	return episode.Before(s.Episode) && s.Episode.Sub(e.cfg.Clock()) <= maxAhead
}

// begins reports whether an episode of a stream is new, and takes it down.
func (e *Engine) begins(key id, episode time.Time) bool {
	s, known := e.streams.Get(key)
	if known && (episode.Equal(s.Episode) || e.over(&s, episode)) {
		return false
	}
	e.streams.Add(key, stream{ID: key, Episode: episode.Round(0).UTC()})
	e.changes++
	return true
}

// occurrence is what a trigger matches.
type occurrence struct {
	matcher    *Matcher
	subject    string // by which cooldown distinguishes them
	hint       string // a name for people, which follows from the subject
	about      string // the subject for people
	cause      string // what happened, for people
	episode    time.Time
	target     target
	podGone    bool // there is no pod as the source names it
	elsewhere  bool // the pod is on another node than the agent that reports it
	parameters v1alpha1.Parameters
	omitted    []string
	cooldown   bool
}

// target is the node or pod that a source names.
type target struct {
	node string
	pod  *v1alpha1.PodReference
}

// decide adds the Diagnosis of an occurrence, unless something is against it. Either is
// final.
func (e *Engine) decide(wanted []*v1alpha1.Diagnosis, o *occurrence, known Known, now time.Time) []*v1alpha1.Diagnosis {
	m := o.matcher
	now = now.Round(0)
	e.now = now
	o.episode = o.episode.Round(0).UTC()
	key := o.key()
	e.subjects.Get(key) // it was heard of
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
	s := subject{ID: key, Episode: o.episode, Started: now.UTC()}
	if o.cooldown {
		s.For = m.cooldown
	}
	e.subjects.Add(key, s)
	e.stats[m.name].Started++
	return append(wanted, dx)
}

// against returns which of the bounds keeps a Diagnosis from being made; empty: none. It
// changes nothing.
func (e *Engine) against(o *occurrence, now time.Time) (why string) {
	m := o.matcher
	last, known := e.subjects.Peek(o.key())
	switch {
	case known && last.Episode.Equal(o.episode): // two problems that began with one event
		return WithheldSame
	case known && o.cooldown && near(now, last.Started, m.cooldown):
		return WithheldCooldown
	}
	started := 0
	for _, t := range e.triggers[m.name].Started {
		if near(now, t, m.within) {
			started++
		}
	}
	if started >= m.count {
		return WithheldRateLimit
	}
	return ""
}

// key is by what the subject is remembered.
func (o *occurrence) key() id { return idOf(o.matcher.name, string(o.matcher.source), o.subject) }

// Changes returns a number that rises whenever what is remembered changes, but for the
// order in which it was heard of: only then a state is worth saving.
func (e *Engine) Changes() uint64 { return e.changes }

// near reports whether two times are less than d apart. A time that is to come is the
// clock's fault, which was set back: it must not hold for longer than one that has been.
func near(now, t time.Time, d time.Duration) bool { return now.Sub(t).Abs() < d }
