package local

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
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
	c          Config
	journal    *journal.Follower
	damaged    int
	entries    int
	first      time.Time
	began      time.Time // latest start of the agent; zero: before first
	losses     map[lossKey]*Loss
	boot       string
	problems   map[string]*kept
	sources    map[string]Source
	conditions map[string]problem.Condition
	mutes      []problem.Mute
	names      map[string]string // UID → namespace/name
	uids       map[string]string // namespace/name → UID of the latest pod with this name
}

// Follow returns a Follower. The journal need not exist until Read.
func Follow(c Config) *Follower {
	return &Follower{
		c: c, journal: journal.Follow(c.Dir), problems: map[string]*kept{}, conditions: map[string]problem.Condition{},
		sources: map[string]Source{}, losses: map[lossKey]*Loss{}, names: map[string]string{}, uids: map[string]string{},
	}
}

// Read returns the state in the journal at a time. With ErrUnknownPod it still returns the state of
// the node's sources. It calls step after each entry; if step returns an error, Read stops and
// returns it, and r can't be used any more.
func (r *Follower) Read(now time.Time, step func() error) (State, error) {
	r.c.Now = now
	damaged, err := r.journal.Read(func(e journal.Entry) error {
		r.entry(&e)
		return step()
	})
	r.damaged += damaged
	if err == nil && r.entries == 0 {
		err = fmt.Errorf("%s: the journal has no entries", r.c.Dir)
	}
	if err != nil {
		return State{}, err
	}
	return r.state()
}

// kept is a problem in the state of its latest transition.
type kept struct {
	problem.Problem
	event *event.Event // its latest event; nil: none
}

// maxNames bounds the known pod names, in case a journal has too many.
const maxNames = 10_000

func (r *Follower) entry(e *journal.Entry) {
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
func (r *Follower) started(e *journal.Entry) {
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

func (r *Follower) event(ev *event.Event, now time.Time) {
	switch {
	case ev.SourceUp != nil && ev.SourceUp.Gone:
		delete(r.sources, ev.SourceUp.Stem)
	case ev.SourceUp != nil:
		s, d := r.sources[ev.SourceUp.Stem], ev.SourceUp
		s.Name, s.Up, s.Reason, s.Fallback, s.Since = d.Stem, d.Up, "", d.Fallback, now
		if !d.Up {
			s.Reason = d.Reason
		}
		r.sources[d.Stem] = s
	case ev.Check != nil:
		r.check(ev.Check, now)
	case ev.Lost != nil:
		r.lost(ev.Lost, now)
		s, known := r.sources[ev.Lost.Stem]
		s.lost, s.losses = now, ev.Lost.Reason
		s.Name, s.Up = ev.Lost.Stem, s.Up || !known
		r.sources[ev.Lost.Stem] = s
	case ev.Probe != nil && ev.Container != nil && ev.Container.PodUID != "" && ev.Probe.Pod != "":
		r.name(ev.Container.PodUID, ev.Probe.Namespace+"/"+ev.Probe.Pod)
	}
}

// name records a pod's name. Several pods may have had it, as in a StatefulSet. The newest is the one
// whose first probe is the latest: probes of an older pod may end after those of the newest have begun.
func (r *Follower) name(uid, name string) {
	if r.names[uid] == "" && len(r.names) < maxNames {
		r.names[uid], r.uids[name] = name, uid
	}
}

// check records whether a check has a result.
func (r *Follower) check(d *event.CheckData, now time.Time) {
	stem := event.NamedStem(event.CheckStem, d.Check)
	s, known := r.sources[stem]
	if up := d.Status != event.CheckUnknown; !known || up != s.Up {
		s = Source{Name: stem, Up: up, check: true, Since: now}
		if !up {
			s.Reason = d.Message
		}
	}
	r.sources[stem] = s
}

func (r *Follower) lost(d *event.LostData, now time.Time) {
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

func (r *Follower) problem(e *journal.Entry, p *problem.Problem) {
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

func (r *Follower) input() (why.Input, error) {
	in := why.Input{Subject: r.c.Subject, Now: r.c.Now, Since: r.c.Since, Pods: r.names}
	in.Read = []string{fmt.Sprintf("journal in %s, %d entries since %s", r.c.Dir, r.entries, r.first.In(r.c.Now.Location()).Format(time.DateTime))}
	if r.damaged > 0 {
		in.Unread = append(in.Unread, why.Unread{What: "journal", Why: fmt.Sprintf("%d damaged lines", r.damaged)})
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
func (r *Follower) blind(in *why.Input) {
	for stem, s := range r.sources {
		switch {
		case stem == event.LogStem || stem == event.CheckStem:
			// It is not a source itself; it names a family without any configured.
		case s.check:
			// Its condition is Unknown and has the reason.
		case !s.Up:
			in.Blind = append(in.Blind, why.Blind{Source: stem, Why: "source is down: " + s.Reason, Since: s.Since})
		case !s.lost.IsZero() && r.c.Now.Sub(s.lost) <= r.c.Since:
			in.Blind = append(in.Blind, why.Blind{Source: stem, Why: "records were lost (" + s.losses + ")", Since: s.lost})
		}
	}
	slices.SortFunc(in.Blind, func(a, b why.Blind) int { return strings.Compare(a.Source, b.Source) })
}

// resolve finds the UID of a pod that was given by name.
func (r *Follower) resolve(s *why.Subject) error {
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

func (r *Follower) about(in *why.Input) {
	for _, k := range r.problems {
		if k.State == problem.Pending || in.Subject.Kind == why.KindPod && !k.hits(in.Subject.UID) {
			continue
		}
		p := why.Problem{
			From: why.FromJournal, Rule: k.Rule, Reason: k.Reason, Message: k.Message, Condition: k.Condition, Severity: k.Severity,
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
		if ev := k.event; ev != nil && ev.Probe != nil && p.Lasts && ev.Probe.Period > 0 {
			p.NextProbe = ev.Time.Add(time.Duration(ev.Probe.Period))
		}
		in.Problems = append(in.Problems, p)
	}
	slices.SortFunc(in.Problems, func(a, b why.Problem) int {
		return cmp.Or(b.Last.Compare(a.Last), strings.Compare(a.Rule+a.Message, b.Rule+b.Message))
	})
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
func (r *Follower) mutedWhy(k *kept) string {
	for i := range r.mutes {
		if m := &r.mutes[i]; m.Rule == k.Rule && m.Until.Equal(k.MutedUntil) {
			return m.Reason
		}
	}
	return ""
}

// State is the state of a node at a time, according to its journal.
type State struct {
	why.Input
	// Started is when the agent started; zero: before the journal begins.
	Started time.Time
	Sources []Source
	Losses  []Loss // since the agent started
}

// Source is the latest state of a source.
type Source struct {
	Name     string
	Up       bool
	Reason   string // why it is down
	Fallback string // which parts of it use a fallback, and why
	Since    time.Time

	check  bool      // it is a check, which reports this with each result
	lost   time.Time // the latest loss; zero: none
	losses string    // its reason
}

// Loss counts the records lost from one source for one reason.
type Loss struct {
	Source, Reason string
	Count          uint64 // 0: unknown, possibly none
	Last           time.Time
}

type lossKey struct{ source, reason string }

// maxLosses bounds the losses that are counted, in case a journal has too many.
const maxLosses = 1000

func (r *Follower) state() (State, error) {
	maps.DeleteFunc(r.problems, func(_ string, k *kept) bool {
		return k.State == problem.Resolved && r.c.Now.Sub(k.LastSeen) > r.c.Since
	})
	in, err := r.input()
	st := State{Input: in, Started: r.began}
	for stem, s := range r.sources {
		// These names are of families without any configured member.
		if stem != event.LogStem && stem != event.CheckStem {
			st.Sources = append(st.Sources, s)
		}
	}
	slices.SortFunc(st.Sources, func(a, b Source) int { return cmp.Compare(a.Name, b.Name) })
	for _, l := range r.losses {
		st.Losses = append(st.Losses, *l)
	}
	slices.SortFunc(st.Losses, func(a, b Loss) int { return cmp.Or(cmp.Compare(a.Source, b.Source), cmp.Compare(a.Reason, b.Reason)) })
	return st, err
}
