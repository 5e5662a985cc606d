package lint

import (
	"fmt"
	"slices"
	"strings"
)

// wording tells which kernels' lines the pattern misses.
func (in *Input) wording(r *Rule, j *judge, k Kernels, tell teller) {
	for _, line := range j.corpus.Healthy {
		if !r.Narrowed && j.matches([]string{line}) {
			tell(Warning, HealthyLine, []string{line}, "matches a line of machines that nothing is wrong with")
			break
		}
	}
	now := slices.DeleteFunc(slices.Clone(j.matched), func(m match) bool { return !m.form.Of(k) })
	if len(now) == 0 {
		j.dead(r, k, tell)
		return
	}
	for _, n := range j.corpus.Renamed {
		if !slices.ContainsFunc(now, func(m match) bool { return m.word != n.Name }) {
			tell(Warning, RenamedProgram, nil, "asks for the program %s: it is %s since %s", n.Name, n.Now, n.Since)
		}
	}
	var told []string
	for _, m := range now {
		if f := m.form.Fault; !slices.Contains(told, f) {
			told = append(told, f)
			in.missing(r, j, f, now, k, tell)
		}
	}
}

// dead tells why a pattern matches no line of the kernels.
func (j *judge) dead(r *Rule, k Kernels, tell teller) {
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
		tell(Error, EndAnchor, j.lines(unbound[0].form.Fault, k), "%s: the match must end where the line ends, but %q follows; let it end in .*", only, unbound[0].text)
	case only != "":
		tell(Error, Dead, j.lines(j.matched[0].form.Fault, k), "%s; those from %v write otherwise", only, k)
	default:
		if f := j.nearest(r.Reason); f != nil {
			if suggest := j.lines(f.Name, k); len(suggest) > 0 {
				tell(Warning, Dead, suggest, "matches no line that is known of kernels %v; near to it is what they write of %s", k, f.Name)
				return
			}
		}
		tell(Info, Unjudged, nil, "no line that this is about is known: not judged")
	}
}

// missing tells which forms of a fault neither the pattern nor another rule of the
// same name matches.
func (in *Input) missing(r *Rule, j *judge, fault string, now []match, k Kernels, tell teller) {
	var archs []string
	latest, same, other := false, []string(nil), []string(nil)
	for _, m := range now {
		if m.form.Fault == fault {
			archs = append(archs, m.form.Arch)
			latest = latest || m.form.Of(Kernels{k.To, k.To})
		}
	}
	for _, f := range j.forms(fault) {
		if !f.Of(k) || slices.ContainsFunc(now, func(m match) bool { return m.form == f }) || in.matchedByPeer(r, f, j.corpus) {
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
		tell(Warning, OldWording, same, "matches the lines of older kernels only; newer ones write")
	case len(same) > 0:
		tell(Warning, MissingForm, same, "does not match every form of %s", fault)
	}
	if len(other) > 0 {
		tell(Info, MissingForm, other, "does not match what other machines write of %s", fault)
	}
}

// matchedByPeer reports whether another rule for the same reason and condition
// matches the form.
func (in *Input) matchedByPeer(r *Rule, f *Form, c *Corpus) bool {
	for i := range in.Rules {
		o := &in.Rules[i]
		if o == r || o.Expr == "" || o.Expr == r.Expr || !o.Kernel || o.Reason != r.Reason || o.Condition != r.Condition {
			continue
		}
		j, err := newJudge(o, &Corpus{Faults: []Fault{{Name: f.Fault, Forms: []Form{*f}}}, Values: c.Values})
		if err == nil && len(j.matched) > 0 {
			return true
		}
	}
	return false
}

// forms returns the forms of a fault.
func (j *judge) forms(fault string) []*Form {
	var out []*Form
	for i := range j.corpus.Faults {
		if f := &j.corpus.Faults[i]; f.Name == fault {
			for k := range f.Forms {
				out = append(out, &f.Forms[k])
			}
		}
	}
	return out
}

// lines returns what the kernels write of a fault, as suggestions.
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
