package lint

import (
	"fmt"
	"slices"
	"strings"
)

// wording reports the kernel lines that the rule's pattern misses or matches by mistake.
func (r *judgedRule) wording(all []judgedRule, k Kernels, report reporter) {
	for _, line := range r.corpus.Healthy {
		if !r.Narrowed && r.matches([]string{line}) {
			report(Warning, HealthyLine, []string{line}, "matches a line that healthy machines log")
			break
		}
	}
	now := slices.DeleteFunc(slices.Clone(r.matched), func(m match) bool { return !m.form.Of(k) })
	if len(now) == 0 {
		r.dead(k, report)
		return
	}
	for _, n := range r.corpus.Renamed {
		if !slices.ContainsFunc(now, func(m match) bool { return m.word != n.Name }) {
			report(Warning, RenamedProgram, nil, "matches the old program name %s: it is %s since %s", n.Name, n.Now, n.Since)
		}
	}
	var reported []*Fault
	for _, m := range now {
		if f := m.form.fault; !slices.Contains(reported, f) {
			reported = append(reported, f)
			r.missing(all, f.Name, now, k, report)
		}
	}
}

// dead reports why a pattern matches no line of the kernels.
func (r *judgedRule) dead(k Kernels, report reporter) {
	unbound := slices.DeleteFunc(slices.Clone(r.unbound), func(m match) bool { return !m.form.Of(k) })
	only := ""
	if len(r.matched) > 0 {
		var kernels []string
		for _, m := range r.matched {
			if s := m.form.kernels(); !slices.Contains(kernels, s) {
				kernels = append(kernels, s)
			}
		}
		only = fmt.Sprintf("matches lines of kernels %s only", strings.Join(kernels, ", "))
	}
	switch {
	case len(unbound) > 0 && r.AnchorEnd:
		if only == "" {
			only = "never matches"
		}
		report(Error, EndAnchor, r.lines(unbound[0].form.fault.Name, k), "%s: the match must end where the line ends, but %q follows; end the pattern with .*", only, unbound[0].text)
	case only != "":
		report(Error, Dead, r.lines(r.matched[0].form.fault.Name, k), "%s; kernels %v use other wording", only, k)
	default:
		if fault := r.nearest(r.Reason); fault != "" {
			if suggest := r.lines(fault, k); len(suggest) > 0 {
				report(Warning, Dead, suggest, "matches no known line of kernels %v; closest are their lines for %s", k, fault)
				return
			}
		}
		report(Info, Unjudged, nil, "not judged: no related line is known")
	}
}

// missing reports which forms of a fault neither the pattern nor another rule of the
// same name matches.
func (r *judgedRule) missing(all []judgedRule, fault string, now []match, k Kernels, report reporter) {
	var archs []string
	latest, same, other := false, []string(nil), []string(nil)
	for _, m := range now {
		if m.form.fault.Name == fault {
			archs = append(archs, m.form.Arch)
			latest = latest || m.form.Of(Kernels{k.To, k.To})
		}
	}
	for _, f := range r.forms(fault) {
		if !f.Of(k) || slices.ContainsFunc(now, func(m match) bool { return m.form == f }) || r.matchedByPeer(all, f) {
			continue
		}
		if f.Arch != "" && !slices.Contains(archs, f.Arch) && !slices.Contains(archs, "") {
			other = append(other, r.line(f))
			continue
		}
		same = append(same, r.line(f))
	}
	switch {
	case len(same) > 0 && !latest:
		report(Warning, OldWording, same, "matches only lines of older kernels; newer kernels log")
	case len(same) > 0:
		report(Warning, MissingForm, same, "does not match every form of %s", fault)
	}
	if len(other) > 0 {
		report(Info, MissingForm, other, "does not match what other architectures log for %s", fault)
	}
}

// matchedByPeer reports whether another rule for the same reason and condition matches the form.
func (r *judgedRule) matchedByPeer(all []judgedRule, f *indexedForm) bool {
	return slices.ContainsFunc(all, func(o judgedRule) bool {
		return o.Rule != r.Rule && o.judge != nil && o.Reason == r.Reason && o.Condition == r.Condition &&
			slices.ContainsFunc(o.matched, func(m match) bool { return m.form == f })
	})
}

// forms returns the forms of a fault.
func (j *judge) forms(fault string) []*indexedForm {
	return slices.DeleteFunc(slices.Clone(j.corpus.forms), func(f *indexedForm) bool { return f.fault.Name != fault })
}

// lines returns the lines that the kernels log for a fault, as suggestions.
func (j *judge) lines(fault string, k Kernels) []string {
	var out []string
	for _, f := range j.forms(fault) {
		if f.Of(k) {
			out = append(out, j.line(f))
		}
	}
	return out
}

func (j *judge) line(f *indexedForm) string {
	return f.kernels() + ": " + strings.Join(j.fill(f, ""), " ⏎ ")
}
