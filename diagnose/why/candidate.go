package why

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// throttled is the reason of a cause that a failed probe only hints at.
const throttled = "ContainerThrottled"

// The ranks of candidates, the most conclusive first.
const (
	byDiagnosis = iota // a Diagnosis has looked for the cause
	byProblem          // a kernel fault at the subject
	bySymptom          // a probe or connection that failed
	byStatus           // the status in the API
)

const (
	// soon is how long after a fault a failed probe counts as its effect: two of kubelet's default
	// periods, and some time for the process to recover.
	soon = 30 * time.Second
	// sameMoment is the largest difference between two API times that still count as equal, because
	// they are whole seconds.
	sameMoment = 1500 * time.Millisecond
	// endsWithin is how long after its cause a container may end: kubelet's grace period and some more.
	endsWithin = 40 * time.Second
)

// candidate is a possible cause, before the answer selects which ones to report.
type candidate struct {
	Cause
	rank      int
	rules     []string
	pod       string
	container string
	subject   string
	not       []string
	do        []string
	problem   *Problem   // nil: it comes only from a Diagnosis or a status
	all       []*Problem // problem, and those merged into it
}

// touches reports whether both candidates may be about the same container.
func (c *candidate) touches(o *candidate) bool {
	if c.pod != o.pod || c.pod == "" {
		return c.subject != "" && c.subject == o.subject
	}
	return c.container == "" || o.container == "" || sameContainer(c.container, o.container)
}

// sameContainer compares names or ids; an id may be shortened.
func sameContainer(a, b string) bool {
	return a == b || len(a) >= 12 && len(b) >= 12 && (strings.HasPrefix(a, b) || strings.HasPrefix(b, a))
}

// isID reports whether a text is a container's id, whole or shortened, and not its name.
func isID(text string) bool { return len(text) >= 12 && strings.Trim(text, "0123456789abcdef") == "" }

// order sorts candidates, the most conclusive first: by rank, then lasting ones, then the latest.
func order(list []*candidate) {
	ended := func(c *candidate) int {
		if c.Lasts {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(list, func(a, b *candidate) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(ended(a), ended(b)), b.Last.Compare(a.Last),
			cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Message, b.Message))
	})
}

func (b *builder) ofProblem(p *Problem) *candidate {
	c := &candidate{
		rank: byProblem, pod: p.Pod, container: p.Container, subject: p.Subject, problem: p, all: []*Problem{p}, not: b.texts(p.Excluded),
		Cause: Cause{
			Reason: p.Reason, Message: b.text(cmp.Or(p.Cause, p.Message)), Severity: p.Severity, Lasts: p.Lasts,
			First: p.First, Last: p.Last, Count: p.Count, Doc: p.Doc,
		},
	}
	if p.Rule != "" {
		c.rules = []string{p.Rule}
	}
	if p.Symptom() {
		c.rank = bySymptom
	}
	if p.Vague() {
		c.Reason, c.Message = throttled, b.text(p.Because)
		c.Why = []string{b.text(cmp.Or(p.Cause, p.Message))}
	} else if p.Because != "" {
		c.Why = []string{b.text(p.Because)}
	}
	if !p.MutedUntil.IsZero() {
		c.Muted = strings.TrimSuffix("muted until "+b.clock(p.MutedUntil)+": "+b.text(p.MutedWhy), ": ")
	}
	c.advise(b, p.Doc, p.Reason, p.Condition)
	return c
}

// advise sets the advice from the first page that has any.
func (c *candidate) advise(b *builder, pages ...string) {
	if b.in.Advice == nil || len(c.do) > 0 {
		return
	}
	for _, page := range pages {
		page = strings.TrimPrefix(page, "problems/")
		if lines := b.in.Advice(page); page != "" && len(lines) > 0 {
			c.do = b.texts(lines)
			c.do[0] += "; docs/problems/" + page
			c.Doc = cmp.Or(c.Doc, "problems/"+page)
			return
		}
	}
}

// ofDiagnosis returns the candidate for a Diagnosis that found a cause.
func (b *builder) ofDiagnosis(d *Diagnosis) *candidate {
	c := &candidate{
		rank: byDiagnosis, pod: d.PodUID, container: d.Container, subject: d.Subject,
		Cause: Cause{Reason: d.Verdict, Message: b.text(d.Message), First: d.Started, Last: d.Ended, Diagnosis: d.name()},
	}
	if d.Rule != "" {
		c.rules = []string{d.Rule}
	}
	for _, f := range d.Excluded {
		c.not = append(c.not, b.finding(f))
	}
	c.advise(b, d.Verdict)
	return c
}

func (d *Diagnosis) name() string {
	if d.Namespace == "" {
		return d.Name
	}
	return d.Namespace + "/" + d.Name
}

// of reports whether the Diagnosis was made for a problem.
func (d *Diagnosis) of(p *Problem) bool { return d.matches(p) && !d.precedes(p) }

// ofEarlier reports whether the Diagnosis was made for an earlier episode of a problem.
func (d *Diagnosis) ofEarlier(p *Problem) bool { return d.matches(p) && d.precedes(p) }

// precedes reports whether the Diagnosis ended before a problem of the journal began.
func (d *Diagnosis) precedes(p *Problem) bool {
	return p.From == FromJournal && !d.Ended.IsZero() && !p.First.IsZero() && d.Ended.Before(p.First.Add(-sameMoment))
}

// refutes reports whether the Diagnosis refuted a check that led to the verdict of an older one of
// the same problem.
func (d *Diagnosis) refutes(older *Diagnosis) bool {
	of := cmp.Or(d.Rule, d.Reason)
	if of == "" || of != cmp.Or(older.Rule, older.Reason) || d.Subject != older.Subject || d.PodUID != older.PodUID || !d.mayBeOf(older.Container) {
		return false
	}
	return slices.ContainsFunc(d.Excluded, func(f Finding) bool { return slices.Contains(older.Path, f.Operation) })
}

// mayBeOf reports whether the Diagnosis may be about a container. A name and an id can't be compared.
func (d *Diagnosis) mayBeOf(container string) bool {
	return d.Container == "" || container == "" || isID(d.Container) != isID(container) || sameContainer(d.Container, container)
}

// matches reports whether the Diagnosis was made for a problem of this rule and subject.
func (d *Diagnosis) matches(p *Problem) bool {
	if d.Rule == "" && d.Reason == "" || p.Rule != "" && d.Rule != "" && p.Rule != d.Rule {
		return false
	}
	if p.Rule == "" && p.Reason != d.Reason || !d.mayBeOf(p.Container) {
		return false
	}
	switch {
	case p.From == FromAPI && p.Pod == "" && d.PodUID != "":
		// An Event on the Node names its pod only in the text.
		return strings.Contains(p.Message, d.PodUID) || d.Pod != "" && mentions(p.Message, d.Pod)
	case p.Pod != "" || d.PodUID != "":
		return p.Pod == d.PodUID
	}
	return p.Subject == "" || d.Subject == "" || p.Subject == d.Subject
}

// mentions reports whether a text has a pod's name, and not only as a part of a longer one: web-1 in
// web-10.
func mentions(text, name string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789-"
	for i := 0; ; i++ {
		at := strings.Index(text[i:], name)
		if at < 0 {
			return false
		}
		i += at
		after := strings.TrimPrefix(text[i+len(name):], ".") // within a name, or at the end of a sentence
		if (i == 0 || strings.IndexByte(letters, text[i-1]) < 0) && (after == "" || strings.IndexByte(letters, after[0]) < 0) {
			return true
		}
	}
}

// takes merges candidate p into c, as an effect of it.
func (c *candidate) takes(p *candidate) {
	c.Effects = appendNew(c.Effects, p.Message)
	c.Effects = appendNew(c.Effects, p.Effects...)
	if !slices.Contains(c.Why, p.Message) {
		for _, w := range p.Why {
			if w != c.Message {
				c.Why = appendNew(c.Why, w)
			}
		}
	}
	c.Lasts = c.Lasts || p.Lasts
	c.Count = max(c.Count, p.Count)
	c.rules = appendNew(c.rules, p.rules...)
	c.all = append(c.all, p.all...)
	if c.First.IsZero() || !p.First.IsZero() && p.First.Before(c.First) {
		c.First = p.First
	}
	if p.Last.After(c.Last) {
		c.Last = p.Last
	}
	c.not = appendNew(c.not, p.not...)
	if len(c.do) == 0 {
		c.do = p.do // otherwise the advice for the cause is what helps
	}
	c.Doc = cmp.Or(c.Doc, p.Doc)
	c.Severity = cmp.Or(c.Severity, p.Severity)
	c.Muted = cmp.Or(c.Muted, p.Muted)
	c.container = cmp.Or(c.container, p.container)
	c.pod = cmp.Or(c.pod, p.pod)
	c.problem = cmp.Or(c.problem, p.problem)
}

func appendNew(list []string, more ...string) []string {
	for _, s := range more {
		if s != "" && !slices.Contains(list, s) {
			list = append(list, s)
		}
	}
	return list
}

// within reports whether b is at most d after a; a may be late by sameMoment.
func within(a, b time.Time, d time.Duration) bool {
	return !b.Before(a.Add(-sameMoment)) && b.Sub(a) <= d
}
