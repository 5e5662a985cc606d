package monitoring_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kernosis/kernosis/vmtest/testenv"
)

// docs/metrics.md lists exactly the metrics in the sources, and other pages mention no others.
func TestEveryMetricIsKnown(t *testing.T) {
	root := testenv.Checkout(t)
	catalog := readCatalog(t)
	known := map[string]bool{}
	for _, m := range catalog {
		known[m.Name] = true
	}
	quoted := regexp.MustCompile(`"((?:kernosis_|problem_)[a-z_]+)"`)
	named := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || slices.Contains([]string{"testdata", "deploy", "vmtest", "docs"}, d.Name())) {
			return filepath.SkipDir
		}
		if filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(text), "prometheus.") {
			return err
		}
		for _, m := range quoted.FindAllStringSubmatch(string(text), -1) {
			named[m[1]] = true
			if !known[m[1]] {
				t.Errorf("%s: docs/metrics.md does not have %s", path, m[1])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range known {
		if !named[name] {
			t.Errorf("docs/metrics.md has %s, which nothing exports", name)
		}
	}
	pages, err := filepath.Glob(filepath.Join(root, "docs/*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range append(pages, filepath.Join(root, "README.md")) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range regexp.MustCompile("`(kernosis_[a-z_]*[a-z])[`{]").FindAllStringSubmatch(string(text), -1) {
			prefix := slices.ContainsFunc(catalog, func(m metric) bool { return strings.HasPrefix(m.Name, name[1]) })
			if !known[name[1]] && !prefix {
				t.Errorf("%s names %s, which nothing exports", path, name[1])
			}
		}
	}
}

// Uses finds the metrics and labels of a query.
func TestUses(t *testing.T) {
	uses, grouping := usesOf(`sum by (le, a) (rate(x_bucket{b="c, d", e=~"f"}[5m] offset 1h)) > bool 2 and on (g) y unless topk(5, z{h!=""})`)
	var got []string
	for _, u := range uses {
		got = append(got, u.Metric+" "+strings.Join(u.Labels, ","))
	}
	if want := []string{"x_bucket b,e", "y ", "z h"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if want := []string{"le", "a", "g"}; !slices.Equal(grouping, want) {
		t.Errorf("%q", grouping)
	}
}

// metric is a row of docs/metrics.md.
type metric struct {
	Name, Of, Type string // Of is agent or controller
	Labels         []string
}

// readCatalog returns the rows in their order: the agent's, then the controller's.
func readCatalog(tb testing.TB) []metric {
	tb.Helper()
	page := readFile(tb, "docs/metrics.md")
	_, page, begun := strings.Cut(page, "<!-- metrics:")
	page, _, ended := strings.Cut(page, "<!-- end of metrics -->")
	agents, controllers, both := strings.Cut(page, "\n## Controller\n")
	if !begun || !ended || !both {
		tb.Fatal("docs/metrics.md: no marks, or no part for the controller")
	}
	form := regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| (gauge|counter|histogram) \\|([a-z_` ]*)\\| .+ \\|$")
	var out []metric
	for _, part := range []struct{ of, text string }{{"agent", agents}, {"controller", controllers}} {
		for _, m := range form.FindAllStringSubmatch(part.text, -1) {
			out = append(out, metric{Name: m[1], Of: part.of, Type: m[2], Labels: strings.Fields(strings.ReplaceAll(m[3], "`", " "))})
		}
	}
	if rows := strings.Count(page, "\n| `"); rows != len(out) || rows == 0 {
		tb.Fatalf("docs/metrics.md: %d rows, of which %d can be read", rows, len(out))
	}
	return out
}

// labelsOf returns the labels that a metric may have in Prometheus, including the target's labels, or
// nil if there is no such metric. It also covers the series of histograms and the metrics of others
// that dashboards and alerts use.
func labelsOf(catalog []metric, name string) []string {
	target := []string{"cluster", "job", "instance", "namespace", "pod", "container", "node"}
	if own, ok := foreign()[name]; ok {
		return append(target, own...)
	}
	var out []string
	for _, m := range catalog {
		series := []string{m.Name}
		if m.Type == "histogram" {
			series = []string{m.Name + "_bucket", m.Name + "_sum", m.Name + "_count"}
		}
		if !slices.Contains(series, name) {
			continue
		}
		out = append(append(out, target...), m.Labels...)
		if strings.HasSuffix(name, "_bucket") {
			out = append(out, "le")
		}
	}
	return out
}

// foreign returns the metrics of Prometheus and of libraries that dashboards and alerts use.
func foreign() map[string][]string {
	return map[string][]string{
		"up":                                        nil,
		"ALERTS":                                    {"alertname", "alertstate", "severity", "app", "reason"},
		"process_resident_memory_bytes":             nil,
		"process_cpu_seconds_total":                 nil,
		"process_start_time_seconds":                nil,
		"leader_election_master_status":             {"name"},
		"workqueue_depth":                           {"name", "controller", "priority"},
		"workqueue_queue_duration_seconds_bucket":   {"name", "controller", "le"},
		"controller_runtime_reconcile_errors_total": {"controller"},
		"rest_client_requests_total":                {"code", "host", "method"},
	}
}

// readFile returns a file of the repository.
func readFile(tb testing.TB, path string) string {
	tb.Helper()
	text, err := os.ReadFile(filepath.Join(testenv.Checkout(tb), path))
	if err != nil {
		tb.Fatal(err)
	}
	return string(text)
}

// use is a selector of a query with the labels it matches.
type use struct {
	Metric string
	Labels []string
}

// usesOf returns the selectors of a PromQL expression, and the labels in its grouping and matching
// clauses. It assumes that the expression is valid, which promtool checks.
func usesOf(expr string) (uses []use, grouping []string) {
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
			u := use{Metric: t}
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

// checkUses fails the test unless the metrics and labels used by an expression exist.
func checkUses(tb testing.TB, catalog []metric, where, expr string) (labels []string) {
	tb.Helper()
	uses, grouping := usesOf(expr)
	if len(uses) == 0 {
		tb.Errorf("%s: no metric in %s", where, expr)
	}
	for _, u := range uses {
		known := labelsOf(catalog, u.Metric)
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
