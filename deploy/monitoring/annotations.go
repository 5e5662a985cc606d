package monitoring

import (
	"fmt"
	"strings"
)

// Labels of all alerts: app, by which routes, inhibitions and dashboards select them, and the
// severity.
const (
	AppLabel      = "app"
	App           = "kernosis"
	SeverityLabel = "severity"
)

// Annotations of alerts. Links exist only if their base URL is configured.
const (
	Summary      = "summary"
	Description  = "description"
	Command      = "command"
	RunbookURL   = "runbook_url"
	DashboardURL = "dashboard_url"
)

// whyNode is the next command to run for a problem of a node.
const whyNode = "kubectl kernosis why node {{ $labels.node }}"

// affected is a template that lists the pods, devices or tasks affected by an alert's firing
// problems. The alert's own metrics contain only the node and the reason.
const affected = "{{ with printf `topk(10, max by (subject) (kernosis_problem_info{cluster=%q, node=%q, reason=%q, subject!=\"\"}))` $labels.cluster $labels.node $labels.reason | query }}" +
	" Affected: {{ range $i, $s := sortByLabel \"subject\" . }}{{ if $i }}, {{ end }}{{ $s.Labels.subject }}{{ end }}.{{ end }}"

// ofNode returns the annotations of an alert on problems of a node.
func (c *AlertConfig) ofNode(summary, description, doc string) map[string]string {
	return c.linked(map[string]string{Summary: summary, Description: description + affected, Command: whyNode}, c.runbook(doc), uidNode)
}

// linked adds the links to an alert's annotations.
func (c *AlertConfig) linked(a map[string]string, runbook, dashboard string) map[string]string {
	if runbook != "" {
		a[RunbookURL] = runbook
	}
	if c.DashboardBase != "" {
		a[DashboardURL] = strings.TrimSuffix(c.DashboardBase, "/") + "/d/" + dashboard + variablesOf(dashboard)
	}
	return a
}

// variablesOf returns the part of a dashboard's URL that sets its variables.
func variablesOf(dashboard string) string {
	cluster := "{{ with $labels.cluster }}%svar-cluster={{ . }}{{ end }}"
	if dashboard == uidNode {
		return "?var-node={{ $labels.node }}" + fmt.Sprintf(cluster, "&")
	}
	return fmt.Sprintf(cluster, "?")
}

// runbook returns the URL of a rule's doc. A doc that is a URL is returned unchanged.
func (c *AlertConfig) runbook(doc string) string {
	switch {
	case doc == "" || c.RunbookBase == "":
		return ""
	case strings.Contains(doc, "://"):
		return doc
	}
	return strings.TrimSuffix(c.RunbookBase, "/") + "/" + doc + ".md"
}
