package monitoring

// alertSeries selects the alerts that a dashboard shows.
func (b *board) alertSeries() string {
	matchers := `app="kernosis", alertstate="firing"`
	if b.alerts != "" {
		matchers += ", " + b.alerts
	}
	return "ALERTS{" + matchers + "}"
}

// annotation marks the times when alerts fire in all panels with a time axis.
func (b *board) annotation() object {
	return object{
		"datasource": prometheus(), "enable": true, "expr": inCluster(b.alertSeries()), "hide": false, "iconColor": "red", "name": "Alerts",
		"step": "60s", "tagKeys": "severity", "textFormat": "{{node}} {{reason}}", "titleFormat": "{{alertname}}",
	}
}

// alertTable lists the firing alerts with links to their runbooks. Grafana's own alert list needs
// the name of a data source, which these dashboards let the user choose.
func (b *board) alertTable(w int) graph {
	return graph{
		kind: rowsOf, w: w, title: "Firing alerts", none: "No alert is firing.",
		text:    "Alerts of deploy/monitoring that are firing. Each links to its runbook.",
		queries: one(runbookOf("max by (alertname, severity, cluster, node, reason) ("+b.alertSeries()+")"), ""),
		names: map[string]string{
			"alertname": "Alert", "severity": "Severity", "cluster": "Cluster", "node": "Node", "reason": "Reason", "folder": "Folder", "page": "Runbook",
		},
		hidden: []string{"Folder"},
	}
}

// runbookOf adds the labels folder and page to alerts, which locate the page of each.
func runbookOf(expr string) string {
	for _, r := range []struct{ label, value, alert string }{
		{"folder", "problems", ".+"},
		{"folder", "runbooks", "Kernosis.+"},
		{"folder", "problems", "KernosisDegraded"},
		{"page", "$1", "(.+?)(?:Repeated)?"},
		{"folder", "runbooks", services},
		{"page", "ServiceUnhealthy", services},
	} {
		expr = `label_replace(` + expr + `, "` + r.label + `", "` + r.value + `", "alertname", "` + r.alert + `")`
	}
	return expr
}

// services matches the alerts on services of nodes, which share one page.
const services = "APIServerUnreachable|ContainerRuntimeUnhealthy|DNSUnreachable|KubeProxyUnhealthy|KubeletUnhealthy"

// runbookLink returns a link from an alert in a table to its page.
func runbookLink() dataLink {
	return dataLink{TargetBlank: true, Title: "Runbook", URL: Docs + "${__data.fields.Folder}/${__data.fields.Runbook}.md"}
}

// firingTable lists the firing problems and what they affect.
func firingTable(w int, matchers string) graph {
	return graph{
		kind: rowsOf, w: w, title: "Firing problems", none: "No problem is firing.",
		text:    "Problems that are firing, with the pod, device or task that each affects: at most 100 per node.",
		queries: one(`max by (cluster, node, severity, reason, subject) (kernosis_problem_info`+matchers+`) == 1`, ""),
		names:   map[string]string{"cluster": "Cluster", "node": "Node", "severity": "Severity", "reason": "Reason", "subject": "Affected"},
	}
}
