package monitoringtest

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Use is a selector of a query with the labels it matches.
type Use struct {
	Metric string
	Labels []string
}

// Uses returns the selectors of a PromQL expression, and the labels in its grouping and matching
// clauses. It assumes that the expression is valid, which promtool checks.
func Uses(expr string) (uses []Use, grouping []string) {
	token := regexp.MustCompile(`"(?:[^"\\]|\\.)*"|\$[a-zA-Z_]+|\[[^]]*\]|[a-zA-Z_:][a-zA-Z0-9_:]*|[0-9][0-9a-zA-Z.]*|[^\s]`)
	all := token.FindAllString(expr, -1)
	at := func(i int) string {
		if i < len(all) {
			return all[i]
		}
		return ""
	}
	name := regexp.MustCompile(`^[a-zA-Z_:]`)
	for i := 0; i < len(all); i++ {
		switch t := all[i]; {
		case slices.Contains([]string{"by", "without", "on", "ignoring", "group_left", "group_right"}, t):
			if at(i+1) != "(" {
				continue
			}
			for i += 2; at(i) != ")" && i < len(all); i++ {
				if at(i) != "," {
					grouping = append(grouping, at(i))
				}
			}
		case !name.MatchString(t) || slices.Contains([]string{"and", "or", "unless", "offset", "bool"}, t):
		case at(i+1) == "(" || slices.Contains([]string{"by", "without"}, at(i+1)): // a function
		default:
			u := Use{Metric: t}
			if at(i+1) == "{" {
				for i += 2; at(i) != "}" && i < len(all); i++ {
					if name.MatchString(at(i)) {
						u.Labels = append(u.Labels, at(i))
					}
				}
			}
			uses = append(uses, u)
		}
	}
	return uses, grouping
}

// CheckUses fails the test unless the metrics and labels used by an expression exist.
func CheckUses(tb testing.TB, catalog []Metric, where, expr string) (labels []string) {
	tb.Helper()
	uses, grouping := Uses(expr)
	if len(uses) == 0 {
		tb.Errorf("%s: no metric in %s", where, expr)
	}
	for _, u := range uses {
		known := Labels(catalog, u.Metric)
		if known == nil {
			tb.Errorf("%s: there is no metric %s", where, u.Metric)
		}
		for _, l := range u.Labels {
			if !slices.Contains(known, l) {
				tb.Errorf("%s: %s has no label %s", where, u.Metric, l)
			}
		}
		labels = append(labels, known...)
	}
	// Labels that are dropped by "without", so they need not exist.
	absent := []string{"uid", "phase", "state"}
	for _, l := range grouping {
		if !slices.Contains(labels, l) && !(strings.Contains(expr, "without") && slices.Contains(absent, l)) {
			tb.Errorf("%s: nothing in it has the label %s: %s", where, l, expr)
		}
	}
	return labels
}
