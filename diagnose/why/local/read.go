package local

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/detector/problem"
	"github.com/kernosis/kernosis/diagnose/why"
	"github.com/kernosis/kernosis/reporter/journal"
)

// Config configures [Read] and [Follow].
type Config struct {
	Dir string // of the journal
	// Subject is a pod, by UID or by namespace and name, or the node.
	Subject why.Subject
	Now     time.Time
	Since   time.Duration
}

// ErrUnknownPod is returned if the journal has no UID for the pod.
var ErrUnknownPod = errors.New("the journal does not contain the UID of that pod") //nolint:gochecknoglobals // a constant

// Read returns the answer's input from the journal. With ErrUnknownPod it still returns the state
// of the node's sources. It calls step after each entry; if step returns an error, Read stops and
// returns it.
func Read(c Config, step func() error) (why.Input, error) {
	st, err := Follow(c).Read(c.Now, step)
	return st.Input, err
}

// Follower reads a journal repeatedly, each time only what is new.
type Follower struct {
	reader  reader
	journal *journal.Follower
	damaged int
}

// Follow returns a Follower. The journal need not exist until Read.
func Follow(c Config) *Follower {
	return &Follower{journal: journal.Follow(c.Dir), reader: reader{
		c: c, problems: map[string]*kept{}, sources: map[string]source{}, conditions: map[string]problem.Condition{}, names: map[string]string{},
		uids: map[string]string{}, losses: map[lossKey]*Loss{},
	}}
}

// Read returns the state in the journal at a time. With ErrUnknownPod it still returns the state of
// the node's sources. It calls step after each entry; if step returns an error, Read stops and
// returns it, and f can't be used any more.
func (f *Follower) Read(now time.Time, step func() error) (State, error) {
	r := &f.reader
	r.c.Now = now
	damaged, err := f.journal.Read(func(e journal.Entry) error {
		r.entry(&e)
		return step()
	})
	f.damaged += damaged
	if err == nil && r.entries == 0 {
		err = fmt.Errorf("%s: the journal has no entries", r.c.Dir)
	}
	if err != nil {
		return State{}, err
	}
	return r.state(f.damaged)
}

// kept is a problem in the state of its latest transition.
type kept struct {
	problem.Problem
	event *event.Event // its latest event; nil: none
}

// source is the latest state that a source reported.
type source struct {
	up       bool
	check    bool // it is a check, which reports this with each result
	reason   string
	fallback string
	at       time.Time
	lost     time.Time // the latest loss; zero: none
	losses   string
}

type reader struct {
	c          Config
	entries    int
	first      time.Time
	began      time.Time // latest start of the agent; zero: before first
	losses     map[lossKey]*Loss
	boot       string
	problems   map[string]*kept
	sources    map[string]source
	conditions map[string]problem.Condition
	mutes      []problem.Mute
	names      map[string]string // UID → namespace/name
	uids       map[string]string // namespace/name → UID of the latest pod with this name
}

// maxNames bounds the known pod names, in case a journal has too many.
const maxNames = 10_000

func (r *reader) entry(e *journal.Entry) {
	if r.entries++; r.entries == 1 {
		r.first = e.Now
	}
	if e.Boot != "" {
		r.started(e)
	}
	if e.Mutes != nil {
		r.mutes = *e.Mutes
	}
	if e.Event != nil {
		r.event(e.Event, e.Now)
	}
	for i := range e.Transitions {
		tr := &e.Transitions[i]
		switch {
		case tr.Problem != nil:
			r.problem(e, tr.Problem)
		case tr.Condition != nil:
			r.conditions[tr.Condition.Type] = *tr.Condition
		}
	}
}

// started handles a start of the agent: earlier states of sources are obsolete, and after a reboot
// so are problems.
func (r *reader) started(e *journal.Entry) {
	clear(r.sources)
	clear(r.losses)
	r.began = e.Now
	if r.boot != "" && r.boot != e.Boot {
		for _, k := range r.problems {
			k.State = problem.Resolved
		}
		clear(r.conditions)
	}
	r.boot = e.Boot
}

func (r *reader) event(ev *event.Event, now time.Time) {
	switch {
	case ev.SourceUp != nil:
		s := r.sources[ev.SourceUp.Stem]
		s.up, s.reason, s.fallback, s.at = ev.SourceUp.Up, ev.SourceUp.Reason, ev.SourceUp.Fallback, now
		r.sources[ev.SourceUp.Stem] = s
	case ev.Check != nil:
		r.check(ev.Check, now)
	case ev.Lost != nil:
		r.lost(ev.Lost, now)
		s, known := r.sources[ev.Lost.Stem]
		s.lost, s.losses = now, ev.Lost.Reason
		s.up = s.up || !known
		r.sources[ev.Lost.Stem] = s
	case ev.Probe != nil && ev.Container != nil && ev.Container.PodUID != "" && ev.Probe.Pod != "":
		r.name(ev.Container.PodUID, ev.Probe.Namespace+"/"+ev.Probe.Pod)
	}
}

// name records a pod's name. Several pods may have had it, as in a StatefulSet. The newest is the
// one whose first probe is the latest: probes of an older pod may end after those of the newest
// have begun.
func (r *reader) name(uid, name string) {
	if r.names[uid] == "" && len(r.names) < maxNames {
		r.names[uid], r.uids[name] = name, uid
	}
}

// check records whether a check has a result.
func (r *reader) check(d *event.CheckData, now time.Time) {
	stem := event.NamedStem(event.CheckStem, d.Check)
	s, known := r.sources[stem]
	if up := d.Status != event.CheckUnknown; !known || up != s.up {
		s = source{up: up, check: true, at: now}
		if !up {
			s.reason = d.Message
		}
	}
	r.sources[stem] = s
}

// lost counts lost records.
func (r *reader) lost(d *event.LostData, now time.Time) {
	key := lossKey{d.Stem, d.Reason}
	l := r.losses[key]
	if l == nil {
		if len(r.losses) == maxLosses {
			return
		}
		l = &Loss{Source: d.Stem, Reason: d.Reason}
		r.losses[key] = l
	}
	l.Count += d.Count
	l.Last = now
}

func (r *reader) problem(e *journal.Entry, p *problem.Problem) {
	key := p.Rule + "\x00" + p.Group
	k := r.problems[key]
	switch {
	case k == nil:
		k = &kept{}
		r.problems[key] = k
	case !k.FirstSeen.Equal(p.FirstSeen):
		k.event = nil // another episode
	}
	k.Problem = *p
	if e.Event != nil && p.State != problem.Resolved && (p.LastSeen.Equal(e.Event.Time) || p.LastSeen.Equal(e.Now)) {
		k.event = e.Event
	}
	// Problems that ended too long ago are not reported.
	if p.State == problem.Resolved && r.c.Now.Sub(p.LastSeen) > r.c.Since {
		delete(r.problems, key)
	}
}

// input returns the input that has been collected.
func (r *reader) input(damaged int) (why.Input, error) {
	in := why.Input{Subject: r.c.Subject, Now: r.c.Now, Since: r.c.Since, Pods: r.names}
	in.Read = []string{fmt.Sprintf("journal in %s, %d entries since %s", r.c.Dir, r.entries, r.first.In(r.c.Now.Location()).Format(time.DateTime))}
	if damaged > 0 {
		in.Unread = append(in.Unread, why.Unread{What: "journal", Why: fmt.Sprintf("%d damaged lines", damaged)})
	}
	if r.first.After(r.c.Now.Add(-r.c.Since)) {
		in.Read[0] += " (it begins there)"
	}
	r.blind(&in)
	for _, c := range r.conditions {
		in.Conditions = append(in.Conditions, c)
	}
	slices.SortFunc(in.Conditions, func(a, b problem.Condition) int { return strings.Compare(a.Type, b.Type) })
	err := r.resolve(&in.Subject)
	if err == nil {
		r.about(&in)
	}
	return in, err
}

// blind reports sources that are down or lost records.
func (r *reader) blind(in *why.Input) {
	for stem, s := range r.sources {
		switch {
		case stem == event.LogStem || stem == event.CheckStem:
			// It is not a source itself; it names a family without any configured.
		case s.check:
			// Its condition is Unknown and has the reason.
		case !s.up:
			in.Blind = append(in.Blind, why.Blind{Source: stem, Why: "source is down: " + s.reason, Since: s.at})
		case !s.lost.IsZero() && r.c.Now.Sub(s.lost) <= r.c.Since:
			in.Blind = append(in.Blind, why.Blind{Source: stem, Why: "records were lost (" + s.losses + ")", Since: s.lost})
		}
	}
	slices.SortFunc(in.Blind, func(a, b why.Blind) int { return strings.Compare(a.Source, b.Source) })
}

// resolve finds the UID of a pod that was given by name.
func (r *reader) resolve(s *why.Subject) error {
	if s.Kind != why.KindPod {
		return nil
	}
	if s.UID == "" {
		s.UID = r.uids[s.Namespace+"/"+s.Name]
	}
	if s.UID == "" && s.Namespace == "" && r.names[s.Name] != "" {
		s.UID = s.Name
	}
	if s.UID == "" {
		for _, k := range r.problems {
			if k.Pod == s.Name {
				s.UID = s.Name
			}
		}
	}
	if s.UID == "" {
		return ErrUnknownPod
	}
	if name := r.names[s.UID]; name != "" && s.Name == s.UID {
		s.Namespace, s.Name, _ = strings.Cut(name, "/")
	}
	return nil
}

// about adds the problems of the subject.
func (r *reader) about(in *why.Input) {
	for _, k := range r.problems {
		if k.State == problem.Pending || in.Subject.Kind == why.KindPod && !k.hits(in.Subject.UID) {
			continue
		}
		p := why.Problem{
			From: why.FromJournal, Rule: k.Rule, Fault: k.Fault, Reason: k.Reason, Message: k.Message, Condition: k.Condition, Severity: k.Severity,
			Subject: k.Subject, Pod: k.Pod, Lasts: k.State == problem.Firing, First: k.FirstSeen, Last: k.LastSeen, Count: k.Count,
			SuppressedBy: k.SuppressedBy, MutedUntil: k.MutedUntil, Facts: k.event.Facts(),
		}
		if in.Subject.Kind == why.KindPod {
			p.Pod = in.Subject.UID // also of a volume's fault
		}
		p.Doc = k.Doc
		if !k.MutedUntil.IsZero() {
			p.MutedWhy = r.mutedWhy(k)
		}
		if d := probeOf(k.event); d != nil && p.Lasts && d.Period > 0 {
			p.NextProbe = k.event.Time.Add(time.Duration(d.Period))
		}
		in.Problems = append(in.Problems, p)
	}
	slices.SortFunc(in.Problems, func(a, b why.Problem) int {
		if d := b.Last.Compare(a.Last); d != 0 {
			return d
		}
		return strings.Compare(a.Rule+a.Message, b.Rule+b.Message)
	})
}

func probeOf(ev *event.Event) *event.ProbeData {
	if ev == nil {
		return nil
	}
	return ev.Probe
}

// hits reports whether the problem is about the pod, or about a device with one of the pod's
// volumes: kubelet mounts volumes below a folder named by the pod's UID.
func (k *kept) hits(uid string) bool {
	if k.Pod == uid {
		return true
	}
	if k.event == nil || k.event.Device == nil {
		return false
	}
	return slices.ContainsFunc(k.event.Device.Mounts, func(m event.Mount) bool { return strings.Contains(m.Path, "/pods/"+uid+"/") })
}

// mutedWhy returns the reason of the mute that silences a problem.
func (r *reader) mutedWhy(k *kept) string {
	for i := range r.mutes {
		if m := &r.mutes[i]; m.Rule == k.Rule && m.Until.Equal(k.MutedUntil) {
			return m.Reason
		}
	}
	return ""
}
