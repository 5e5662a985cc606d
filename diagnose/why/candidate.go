package why

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// throttled is the reason of a cause that a failed probe only points to.
const throttled = "ContainerThrottled"

// The ranks of candidates, the most conclusive first.
const (
	byDiagnosis = iota // somebody has looked for the cause
	byProblem          // a fault of the kernel, at the subject
	bySymptom          // a probe or connection that failed
	byStatus           // what the API says of it
)

const (
	// soon is within what time after a fault a failed probe is taken for its effect: two
	// of kubelet's default periods, and some for the process to come back.
	soon = 30 * time.Second
	// sameMoment is what times of the API are apart that mean the same: they are whole
	// seconds.
	sameMoment = 1500 * time.Millisecond
	// endsWithin is how long after its cause a container may end: kubelet's grace period.
	endsWithin = 40 * time.Second
)

// candidate is a cause before it is known whether it is reported.
type candidate struct {
	Cause
	rank      int
	rules     []string
	pod       string
	container string
	subject   string
	not       []string
	do        []string
	problem   *Problem   // nil: it comes from a Diagnosis alone, or a status
	all       []*Problem // problem, and those that it took
}

// touches reports whether both may be about the same container.
func (c *candidate) touches(o *candidate) bool {
	if c.pod != o.pod || c.pod == "" {
		return c.subject != "" && c.subject == o.subject
	}
	return c.container == "" || o.container == "" || sameContainer(c.container, o.container)
}

// sameContainer compares names and ids, which may be cut.
func sameContainer(a, b string) bool {
	return a == b || len(a) >= 12 && len(b) >= 12 && (strings.HasPrefix(a, b) || strings.HasPrefix(b, a))
}

// order puts the most conclusive first: rank, then what lasts, then the latest.
func order(list []*candidate) {
	slices.SortStableFunc(list, func(a, b *candidate) int {
		if d := cmp.Compare(a.rank, b.rank); d != 0 {
			return d
		}
		if a.Lasts != b.Lasts {
			if a.Lasts {
				return -1
			}
			return 1
		}
		if d := b.Last.Compare(a.Last); d != 0 {
			return d
		}
		return cmp.Or(cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Message, b.Message))
	})
}

// ofProblem is the candidate of a problem alone.
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

// advise takes the advice of the first page that there is.
func (c *candidate) advise(b *builder, pages ...string) {
	if b.in.Advice == nil || len(c.do) > 0 {
		return
	}
	for _, page := range pages {
		page = strings.TrimPrefix(page, "problems/")
		if lines := b.in.Advice(page); page != "" && len(lines) > 0 {
			c.do = b.texts(lines)
			c.do[0] += "; docs/problems/" + page
			if c.Doc == "" {
				c.Doc = "problems/" + page
			}
			return
		}
	}
}

// ofDiagnosis is the candidate of a Diagnosis that found a cause.
func (b *builder) ofDiagnosis(d *Diagnosis) *candidate {
	c := &candidate{
		rank: byDiagnosis, pod: d.PodUID, subject: d.Subject,
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
func (d *Diagnosis) of(p *Problem) bool {
	if d.Rule == "" && d.Reason == "" || p.Rule != "" && d.Rule != "" && p.Rule != d.Rule {
		return false
	}
	if p.Rule == "" && p.Reason != d.Reason {
		return false
	}
	switch {
	case p.From == FromAPI && p.Pod == "" && d.PodUID != "":
		// An Event on the Node names the pod that it is about in its text alone.
		return strings.Contains(p.Message, d.PodUID) || d.Pod != "" && strings.Contains(p.Message, d.Pod)
	case p.Pod != "" || d.PodUID != "":
		return p.Pod == d.PodUID
	}
	return p.Subject == "" || d.Subject == "" || p.Subject == d.Subject
}

// takes makes a problem part of a candidate: as what it led to.
func (c *candidate) takes(b *builder, p *candidate) {
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
		c.do = p.do // else the cause's own is what helps
	}
	c.Doc = cmp.Or(c.Doc, p.Doc)
	c.Severity = cmp.Or(c.Severity, p.Severity)
	c.Muted = cmp.Or(c.Muted, p.Muted)
	c.container = cmp.Or(c.container, p.container)
	c.pod = cmp.Or(c.pod, p.pod)
	if c.problem == nil {
		c.problem = p.problem
	}
}

func appendNew(list []string, more ...string) []string {
	for _, s := range more {
		if s != "" && !slices.Contains(list, s) {
			list = append(list, s)
		}
	}
	return list
}

// within reports whether b is at most d after a, which may be a little late itself.
func within(a, b time.Time, d time.Duration) bool {
	return !b.Before(a.Add(-sameMoment)) && b.Sub(a) <= d
}
