package status

import (
	"cmp"
	"slices"
	"time"

	"github.com/kernosis/kernosis/bpf"
	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/selfcheck"
	"github.com/kernosis/kernosis/detector/problem"
)

// build combines the data of the endpoint and the journal.
func (g *reading) build() {
	g.problems()
	g.conditions()
	g.sources()
	g.losses()
	g.writes()
	g.metrics.each("kernosis_build_info", func(label func(string) string, _ float64) { g.Agent.Version = label("version") })
	if at := g.metrics.value("process_start_time_seconds"); at > 0 {
		g.Agent.Started = seconds(at)
	}
}

// problems adds the firing problems of the journal, and those that only the metrics have.
func (g *reading) problems() {
	known := map[string]int{}
	if g.local != nil {
		text := g.local.Texts()
		for i := range g.local.Problems {
			p := &g.local.Problems[i]
			if !p.Lasts {
				continue
			}
			if p.MutedUntil.IsZero() {
				known[p.Rule]++
			}
			g.Problems = append(g.Problems, Problem{
				Rule: text(p.Rule), Reason: text(p.Reason), Severity: p.Severity, Subject: text(p.Subject), Message: text(p.Message), Condition: text(p.Condition),
				Since: p.First, Last: p.Last, Count: p.Count, HiddenBy: text(p.SuppressedBy), MutedUntil: p.MutedUntil, MutedWhy: text(p.MutedWhy), Doc: text(p.Doc),
			})
		}
	}
	g.metrics.each("kernosis_problems", func(label func(string) string, n float64) {
		if more := int(n) - known[label("rule")]; more > 0 {
			g.otherProblems(label("rule"), more)
		}
	})
	slices.SortStableFunc(g.Problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(rank(&b), rank(&a)), a.Since.Compare(b.Since), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Subject, b.Subject))
	})
}

// otherProblems adds problems of a rule that the journal does not have, more of them, with the
// details that the metrics have.
func (g *reading) otherProblems(rule string, more int) {
	message := "it began before the oldest journal entry"
	if g.local == nil {
		message = "no details: the journal can't be read"
	}
	seen := slices.Clone(g.Problems)
	g.metrics.each("kernosis_problem_info", func(label func(string) string, is float64) {
		p := Problem{Rule: rule, Reason: label("reason"), Severity: problem.Severity(label("severity")), Subject: label("subject"), Message: message}
		known := slices.ContainsFunc(seen, func(o Problem) bool { return o.Rule == rule && o.Subject == p.Subject })
		if is == 1 && more > 0 && label("rule") == rule && !known {
			g.Problems = append(g.Problems, p)
			more--
		}
	})
	if more > 0 {
		g.Problems = append(g.Problems, Problem{Rule: rule, Count: uint64(more), Message: message})
	}
}

// rank returns the rank of a problem: higher for severe ones, lowest for hidden or muted ones.
func rank(p *Problem) int {
	n := p.Severity.Rank()
	if p.HiddenBy != "" || !p.counts() {
		n -= 10
	}
	return n
}

// conditions adds the conditions of the journal, limited to and updated by the agent's current ones.
func (g *reading) conditions() {
	if g.local != nil {
		text := g.local.Texts()
		for _, c := range g.local.Conditions {
			c.Reason, c.Message = text(c.Reason), text(c.Message)
			g.Conditions = append(g.Conditions, c)
		}
	}
	if g.metrics == nil {
		return
	}
	now := []problem.Condition{}
	g.metrics.each("kernosis_condition", func(label func(string) string, is float64) {
		if is != 1 {
			return
		}
		c := problem.Condition{Type: label("type"), Status: problem.Status(label("status"))}
		if i := slices.IndexFunc(g.Conditions, func(o problem.Condition) bool { return o.Type == c.Type && o.Status == c.Status }); i >= 0 {
			c = g.Conditions[i]
		}
		now = append(now, c)
	})
	slices.SortFunc(now, func(a, b problem.Condition) int { return cmp.Compare(a.Type, b.Type) })
	g.Conditions = now
}

// sources adds the sources of the journal with their current state in the metrics, and the sources
// that only the metrics have.
func (g *reading) sources() {
	up := map[string]bool{}
	g.metrics.each("kernosis_source_up", func(label func(string) string, is float64) { up[label("stem")] = is == 1 })
	if g.local != nil {
		text := g.local.Texts()
		for _, s := range g.local.Sources {
			now, known := up[s.Name]
			if delete(up, s.Name); !known {
				now = s.Up
			}
			g.source(s.Name, now, text(s.Fallback), text(s.Reason), s.Since)
		}
	}
	for name, is := range up {
		g.source(name, is, "", "", time.Time{})
	}
	slices.SortFunc(g.Sources, func(a, b Source) int { return cmp.Compare(a.Name, b.Name) })
}

func (g *reading) source(name string, up bool, fallback, why string, since time.Time) {
	s := Source{Name: display.Safe(name, maxWord), Since: since}
	ofKernel := slices.ContainsFunc(bpf.Stems(), func(b bpf.Stem) bool { return b.Name == name })
	switch {
	case name == event.NamedStem(event.CheckStem, selfcheck.Check): // shown as condition KernosisDegraded
		return
	case !up:
		s.State, s.Why = Blind, cmp.Or(why, "unknown reason")
	case fallback != "":
		s.State, s.Why = Fallback, fallback
	case ofKernel:
		s.State = Attached
	default:
		s.State = Up
	}
	g.Sources = append(g.Sources, s)
}

// counted returns the metrics that count losses of the agent. If what is empty, the label whatLabel
// names what was lost.
func counted() []struct{ metric, what, whatLabel, reasonLabel string } {
	return []struct{ metric, what, whatLabel, reasonLabel string }{
		{"kernosis_records_lost_total", "", "stem", "reason"},
		{"kernosis_journal_failed_total", "journal entries", "", ""},
		{"kernosis_events_dropped_total", "Events", "", "reason"},
		{"kernosis_events_lost_entries_total", "journal entries before their Events", "", ""},
		{"kernosis_diagnoses_dropped_total", "Diagnoses", "", "reason"},
		{"kernosis_output_errors_total", "output lines", "", ""},
	}
}

func (g *reading) losses() {
	if g.metrics == nil {
		if g.local != nil {
			for _, l := range g.local.Losses {
				g.Losses = append(g.Losses, Loss{What: display.Safe(l.Source, maxWord), Reason: display.Safe(l.Reason, maxWord), Count: l.Count})
			}
		}
		return
	}
	for _, of := range counted() {
		g.metrics.each(of.metric, func(label func(string) string, n float64) {
			l := Loss{What: cmp.Or(of.what, label(of.whatLabel)), Count: uint64(max(n, 0))}
			if of.reasonLabel != "" {
				l.Reason = label(of.reasonLabel)
			}
			i := slices.IndexFunc(g.Losses, func(o Loss) bool { return o.What == l.What && o.Reason == l.Reason })
			switch {
			case i >= 0:
				g.Losses[i].Count += l.Count // from another series, for example of another rule
			case n > 0 || of.what == "": // a source has a series only if it may have lost something
				g.Losses = append(g.Losses, l)
			}
		})
	}
}

// writes adds when the API server last accepted a write.
func (g *reading) writes() {
	if g.API.Known = g.metrics != nil; !g.API.Known {
		return
	}
	_, g.API.Used = g.metrics["kernosis_api_writes_total"]
	g.metrics.each("kernosis_api_last_acknowledged_timestamp_seconds", func(label func(string) string, at float64) {
		g.API.Writes = append(g.API.Writes, Write{Object: label("object"), Last: seconds(at)})
	})
	g.API.Pending = g.metrics.value("kernosis_conditions_pending") > 0
	slices.SortFunc(g.API.Writes, func(a, b Write) int { return cmp.Compare(a.Object, b.Object) })
}
