package monitoringtest

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Metric is a row of docs/metrics.md.
type Metric struct {
	Name, Of, Type string // Of is agent or controller
	Labels         []string
}

// Catalog returns the rows in their order: the agent's, then the controller's.
func Catalog(tb testing.TB) []Metric {
	tb.Helper()
	page := Read(tb, "docs/metrics.md")
	_, page, begun := strings.Cut(page, "<!-- metrics:")
	page, _, ended := strings.Cut(page, "<!-- end of metrics -->")
	agents, controllers, both := strings.Cut(page, "\n## Controller\n")
	if !begun || !ended || !both {
		tb.Fatal("docs/metrics.md: no marks, or no part for the controller")
	}
	form := regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| (gauge|counter|histogram) \\|([a-z_` ]*)\\| .+ \\|$")
	var out []Metric
	for _, part := range []struct{ of, text string }{{"agent", agents}, {"controller", controllers}} {
		for _, m := range form.FindAllStringSubmatch(part.text, -1) {
			out = append(out, Metric{Name: m[1], Of: part.of, Type: m[2], Labels: strings.Fields(strings.ReplaceAll(m[3], "`", " "))})
		}
	}
	if rows := strings.Count(page, "\n| `"); rows != len(out) || rows == 0 {
		tb.Fatalf("docs/metrics.md: %d rows, of which %d can be read", rows, len(out))
	}
	return out
}

// Labels returns the labels that a metric may have in Prometheus, including the target's labels, or
// nil if there is no such metric. It also covers the series of histograms and the metrics of others
// that dashboards and alerts use.
func Labels(catalog []Metric, name string) []string {
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

// Root returns the root folder of the repository.
func Root(tb testing.TB) string {
	tb.Helper()
	dir, err := os.Getwd()
	if err != nil {
		tb.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			tb.Fatal("no go.mod above the test")
		}
		dir = filepath.Dir(dir)
	}
}

// Read returns a file of the repository.
func Read(tb testing.TB, path string) string {
	tb.Helper()
	text, err := os.ReadFile(filepath.Join(Root(tb), path))
	if err != nil {
		tb.Fatal(err)
	}
	return string(text)
}
