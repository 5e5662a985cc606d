package lint

import (
	"fmt"
	"slices"
	"strings"
)

// wording reports the kernel lines that the pattern of rule i misses or matches by mistake.
func (in *Input) wording(i int, judges []*judge, k Kernels, report reporter) {
	r, j := &in.Rules[i], judges[i]
	for _, line := range j.corpus.Healthy {
		if !r.Narrowed && j.matches([]string{line}) {
			report(Warning, HealthyLine, []string{line}, "matches a line that healthy machines log")
			break
		}
	}
	now := slices.DeleteFunc(slices.Clone(j.matched), func(m match) bool { return !m.form.Of(k) })
	if len(now) == 0 {
		j.dead(r, k, report)
		return
	}
	for _, n := range j.corpus.Renamed {
		if !slices.ContainsFunc(now, func(m match) bool { return m.word != n.Name }) {
			report(Warning, RenamedProgram, nil, "matches the old program name %s: it is %s since %s", n.Name, n.Now, n.Since)
		}
	}
	var reported []string
	for _, m := range now {
		if f := m.form.Fault; !slices.Contains(reported, f) {
			reported = append(reported, f)
			in.missing(i, judges, f, now, k, report)
		}
	}
}

// dead reports why a pattern matches no line of the kernels.
func (j *judge) dead(r *Rule, k Kernels, report reporter) {
	unbound := slices.DeleteFunc(slices.Clone(j.unbound), func(m match) bool { return !m.form.Of(k) })
	only := ""
	if len(j.matched) > 0 {
		var kernels []string
		for _, m := range j.matched {
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
		report(Error, EndAnchor, j.lines(unbound[0].form.Fault, k), "%s: the match must end where the line ends, but %q follows; end the pattern with .*", only, unbound[0].text)
	case only != "":
		report(Error, Dead, j.lines(j.matched[0].form.Fault, k), "%s; kernels %v use other wording", only, k)
	default:
		if fault := j.nearest(r.Reason); fault != "" {
			if suggest := j.lines(fault, k); len(suggest) > 0 {
				report(Warning, Dead, suggest, "matches no known line of kernels %v; closest are their lines for %s", k, fault)
				return
			}
		}
		report(Info, Unjudged, nil, "not judged: no related line is known")
	}
}

// missing reports which forms of a fault neither the pattern nor another rule of the
// same name matches.
func (in *Input) missing(i int, judges []*judge, fault string, now []match, k Kernels, report reporter) {
	j := judges[i]
	var archs []string
	latest, same, other := false, []string(nil), []string(nil)
	for _, m := range now {
		if m.form.Fault == fault {
			archs = append(archs, m.form.Arch)
			latest = latest || m.form.Of(Kernels{k.To, k.To})
		}
	}
	for _, f := range j.forms(fault) {
		if !f.Of(k) || slices.ContainsFunc(now, func(m match) bool { return m.form == f }) || in.matchedByPeer(i, judges, f) {
			continue
		}
		if f.Arch != "" && !slices.Contains(archs, f.Arch) && !slices.Contains(archs, "") {
			other = append(other, j.line(f))
			continue
		}
		same = append(same, j.line(f))
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

// matchedByPeer reports whether another rule for the same reason and condition
// matches the form.
func (in *Input) matchedByPeer(i int, judges []*judge, f *Form) bool {
	r := &in.Rules[i]
	for k, j := range judges {
		o := &in.Rules[k]
		if k != i && j != nil && o.Reason == r.Reason && o.Condition == r.Condition &&
			slices.ContainsFunc(j.matched, func(m match) bool { return m.form == f }) {
			return true
		}
	}
	return false
}

// forms returns the forms of a fault.
func (j *judge) forms(fault string) []*Form {
	return slices.DeleteFunc(slices.Clone(j.corpus.forms), func(f *Form) bool { return f.Fault != fault })
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

func (j *judge) line(f *Form) string {
	return f.kernels() + ": " + strings.Join(j.fill(f, ""), " ⏎ ")
}
