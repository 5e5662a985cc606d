package why

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/detector/problem"
)

// recovered is the verdict of a Diagnosis whose target recovered by itself. It is not a cause.
const recovered = "ProbeRecovered"

type builder struct {
	in   *Input
	text func(string) string // makes foreign text safe to print
	list []*candidate
	// containers are those that the question is about.
	containers []*Container
	// problems are the problems to report: not too old, and not of another container.
	problems []*Problem
	notes    []string // what diagnoses could not inspect
}

// Build builds the answer from an Input.
func Build(in Input) *Answer {
	b := &builder{in: &in}
	b.text = in.Texts()
	for i := range in.Containers {
		if c := &in.Containers[i]; in.Subject.Container == "" || in.Subject.Container == c.Name {
			b.containers = append(b.containers, c)
		}
	}
	b.choose()
	b.fold()
	b.diagnoses()
	b.effects()
	b.endings()
	b.conditions()
	b.statuses()
	order(b.list)
	return b.answer()
}

// Texts returns a function that makes foreign text safe to print: it escapes and bounds it, and
// replaces ids by names.
func (in *Input) Texts() func(string) string {
	var pairs []string
	for uid, name := range in.Pods {
		if uid != "" && name != "" {
			pairs = append(pairs, "pod "+uid, "pod "+name) // not within a path
		}
	}
	for i := range in.Containers {
		c := &in.Containers[i]
		for _, id := range c.ids() {
			pairs = append(pairs, "container "+id[:12], "container "+c.Name)
		}
	}
	names := strings.NewReplacer(pairs...)
	return func(s string) string {
		return display.Safe(strings.TrimSpace(names.Replace(strings.ReplaceAll(s, "\n", " "))), maxText)
	}
}

// ids returns the known ids of a container and of its previous instances.
func (c *Container) ids() []string {
	ids := []string{c.ID}
	for _, e := range []*Ending{c.Ended, c.Before} {
		if e != nil {
			ids = append(ids, e.ID)
		}
	}
	return slices.DeleteFunc(ids, func(id string) bool { return len(id) < 12 })
}

func (b *builder) texts(list []string) []string {
	var out []string
	for _, s := range list {
		out = appendNew(out, b.text(s))
	}
	return out
}

func (b *builder) finding(f Finding) string {
	return strings.TrimSuffix(b.text(f.Reason)+": "+b.text(f.Message), ": ")
}

func (b *builder) clock(t time.Time) string { return display.Clock(t, b.in.Now) }

// recent reports whether something happened recently enough to be reported.
func (b *builder) recent(at time.Time) bool { return b.in.Now.Sub(at) <= b.in.Since }

// container returns the name of the container with a name or id; empty if the id is of an unknown
// container.
func (b *builder) container(nameOrID string) string {
	for i := range b.in.Containers {
		c := &b.in.Containers[i]
		if nameOrID == c.Name || slices.ContainsFunc(c.ids(), func(id string) bool { return sameContainer(id, nameOrID) }) {
			return c.Name
		}
	}
	if len(b.in.Containers) > 0 && isID(nameOrID) {
		return "" // the id of a container that is gone
	}
	return nameOrID
}

// ours reports whether the question may be about a container.
func (b *builder) ours(container string) bool {
	return container == "" || b.in.Subject.Container == "" || container == b.in.Subject.Container
}

// choose selects the problems to report, and makes candidates from them. It leaves out what is about
// another container.
func (b *builder) choose() {
	var diagnoses []Diagnosis
	for _, d := range b.in.Diagnoses {
		if d.Container = b.container(d.Container); b.ours(d.Container) {
			diagnoses = append(diagnoses, d)
		}
	}
	b.in.Diagnoses = diagnoses
	for i := range b.in.Problems {
		p := &b.in.Problems[i]
		p.Container = b.container(p.Container)
		if !p.Lasts && !b.recent(p.Last) || !b.ours(p.Container) {
			continue
		}
		b.problems = append(b.problems, p)
		b.list = append(b.list, b.ofProblem(p))
	}
	order(b.list)
}

// fold merges candidates that report the same fault: rules that matched the same event, and
// problems that their cause suppresses.
func (b *builder) fold() {
	b.merge(func(main, other *candidate) bool {
		p, o := main.problem, other.problem
		if p.Kind != o.Kind || p.Kind == "" || p.Last.Sub(o.Last).Abs() > sameMoment || p.Condition != "" && o.Condition == "" {
			return false
		}
		return slices.Equal(p.Evidence, o.Evidence) && len(p.Evidence) > 0 || p.Verdict == o.Verdict && main.touches(other)
	})
	b.merge(func(main, other *candidate) bool {
		return other.problem.SuppressedBy != "" && slices.Contains(main.rules, other.problem.SuppressedBy)
	})
}

// merge merges each candidate with all others for which is returns true.
func (b *builder) merge(is func(main, other *candidate) bool) {
	for i := 0; i < len(b.list); i++ {
		for j := 0; j < len(b.list); j++ {
			if i != j && is(b.list[i], b.list[j]) {
				b.list[i].takes(b.list[j])
				b.list = slices.Delete(b.list, j, j+1)
				if j < i {
					i--
				}
				j--
			}
		}
	}
}

// diagnoses ranks the verdicts of Diagnoses above the problems for which these were made.
func (b *builder) diagnoses() {
	all := make([]*Diagnosis, 0, len(b.in.Diagnoses))
	for i := range b.in.Diagnoses {
		all = append(all, &b.in.Diagnoses[i])
	}
	slices.SortStableFunc(all, func(x, y *Diagnosis) int { return y.Started.Compare(x.Started) })
	for i, d := range all {
		of := func(c *candidate) bool {
			return slices.ContainsFunc(c.all, d.of)
		}
		if !b.recent(d.Started) && !slices.ContainsFunc(b.list, func(c *candidate) bool { return of(c) && c.Lasts }) {
			continue
		}
		for _, f := range d.CouldNotLook {
			b.notes = appendNew(b.notes, d.name()+" could not look: "+b.finding(f))
		}
		if d.Verdict == "" || d.Verdict == recovered {
			for _, c := range b.list {
				if of(c) {
					for _, f := range d.Excluded {
						c.not = appendNew(c.not, b.finding(f))
					}
				}
			}
			continue
		}
		if slices.ContainsFunc(b.list, func(c *candidate) bool { return c.rank == byDiagnosis && of(c) }) {
			continue // a newer one has found the cause
		}
		if !slices.ContainsFunc(b.list, of) && slices.ContainsFunc(b.list, func(c *candidate) bool { return slices.ContainsFunc(c.all, d.ofEarlier) }) {
			continue // the problem has come back since, maybe with another cause
		}
		if slices.ContainsFunc(all[:i], func(newer *Diagnosis) bool { return newer.refutes(d) }) {
			continue
		}
		c := b.ofDiagnosis(d)
		b.list = slices.DeleteFunc(b.list, func(o *candidate) bool {
			if !of(o) {
				return false
			}
			c.takes(o)
			return true
		})
		if c.problem == nil {
			c.advise(b, d.Reason)
		}
		b.list = append(b.list, c)
	}
}

// effects merges failed probes into the fault that came just before.
func (b *builder) effects() {
	b.merge(func(main, other *candidate) bool {
		if other.rank != bySymptom || main.rank >= bySymptom || main.problem != nil && main.problem.Symptom() || !main.touches(other) {
			return false
		}
		return within(main.Last, other.Last, soon) || main.Lasts && within(main.First, other.Last, b.in.Since)
	})
}

func (b *builder) answer() *Answer {
	in := b.in
	a := &Answer{Subject: in.Subject, At: in.Now, Read: b.texts(in.Read), Unread: b.notes}
	a.Subject.Reason, a.Subject.Message = b.text(a.Subject.Reason), b.text(a.Subject.Message)
	most := maxCauses
	if in.Subject.Kind == KindNode {
		most = maxNodeCauses
	}
	reported := b.list[:min(len(b.list), most)]
	a.MoreCauses = len(b.list) - len(reported)
	for _, c := range reported {
		c.Reason, c.Doc = b.text(c.Reason), b.text(c.Doc)
		a.Causes = append(a.Causes, c.Cause)
		a.Not = appendNew(a.Not, c.not...)
		a.Do = appendNew(a.Do, c.do...)
	}
	a.Not, a.Do = a.Not[:min(len(a.Not), maxList)], a.Do[:min(len(a.Do), maxList)]
	b.moments(a)
	b.held(a)
	a.State = b.state()
	if in.Subject.Kind == KindPod {
		for _, c := range in.Conditions {
			if c.Status == problem.True && c.Type != ready {
				a.Node = appendNew(a.Node, b.condition(&c))
			}
		}
	}
	b.blind(a)
	return a
}

// blind adds what could not be observed, and sets the outcome.
func (b *builder) blind(a *Answer) {
	for _, s := range b.in.Blind {
		text := b.text(s.Source) + ": " + b.text(s.Why)
		if !s.Since.IsZero() {
			text += " (since " + b.clock(s.Since) + ")"
		}
		a.Blind = appendNew(a.Blind, text)
	}
	for _, c := range b.in.Conditions {
		if c.Status == problem.Unknown {
			a.Blind = appendNew(a.Blind, b.condition(&c))
		}
	}
	needed := false
	for _, u := range b.in.Unread {
		a.Unread = appendNew(a.Unread, b.text(u.What)+": "+b.text(u.Why))
		needed = needed || u.Needed
	}
	switch {
	case len(a.Causes) > 0:
		a.Outcome = Found
	case len(a.Blind) > 0 || needed || len(b.in.Read) == 0:
		a.Outcome = Unsure
	default:
		a.Outcome = Healthy
	}
}

// held adds repairs that are due and were not made.
func (b *builder) held(a *Answer) {
	for i := range b.in.Diagnoses {
		d := &b.in.Diagnoses[i]
		if !b.recent(d.Started) && !d.Ended.IsZero() {
			continue
		}
		for _, r := range d.Repairs {
			if r.Held {
				a.Held = appendNew(a.Held, strings.TrimSuffix(fmt.Sprintf("%s (%s, %s): %s", b.text(r.Operation), r.State, d.name(), b.text(r.Message)), ": "))
			}
		}
	}
	a.Held = a.Held[:min(len(a.Held), maxList)]
}
