package detector

import (
	"slices"
	"strings"

	"github.com/kernosis/kernosis/detector/problem"
)

// severityWhen is a compiled expression of severityWhen.
type severityWhen struct {
	severity problem.Severity
	when     *expr
}

// readSeverityWhen reads the expressions by their severities.
func (r *loadedRule) readSeverityWhen() {
	if r.Keys["severityWhen"] == nil {
		return
	}
	r.SeverityWhen = make(map[problem.Severity]string)
	pairs := r.Map("severityWhen")
	for _, p := range pairs {
		s := problem.Severity(p.Key.Value)
		if s.Rank() == 0 {
			r.Reader.Errorf(p.Key, r.Field("severityWhen"), "%q: want one of info, warning, critical", s)
			continue
		}
		r.SeverityWhen[s] = strings.TrimSpace(r.Reader.String(p.Value, r.Field(severityKey(s))))
		r.Keys[severityKey(s)] = p.Value
	}
	if len(pairs) == 0 {
		r.Errorf("severityWhen", "want at least one expression, such as {critical: event.scope == \"global\"}")
	}
}

func severityKey(s problem.Severity) string { return "severityWhen." + string(s) }

// compileSeverityWhen compiles the expressions in the order in which they are tried: worst first.
func (r *loadedRule) compileSeverityWhen(c *compiler) {
	for _, s := range slices.Backward(problem.Severities()) {
		if x := r.compileBool(c, severityKey(s), r.SeverityWhen[s]); x != nil {
			r.checkCarried(severityKey(s), x.fields, r.Events)
			r.severityWhen = append(r.severityWhen, severityWhen{s, x})
		}
	}
}

// worsened reports whether the current event raises the problem's severity.
func (e *Engine) worsened(en *entry) bool {
	return len(en.rule.severityWhen) > 0 && e.severity(en.rule).Rank() > en.p.Severity.Rank()
}

// severity returns the severity of the current event: the worst whose expression is true, else the
// rule's.
func (e *Engine) severity(r *ruleState) problem.Severity {
	for _, w := range r.severityWhen {
		if e.test(r, w.when) {
			return w.severity
		}
	}
	return r.Severity
}
