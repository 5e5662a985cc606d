package grafana

// docs is the folder of the documentation. The chart replaces it with its own address.
const docs = "https://github.com/kernosis/kernosis/blob/main/docs/"

// alertSeries selects the alerts that a dashboard shows.
func (b *board) alertSeries() string {
	matchers := `app="kernosis", alertstate="firing"`
	if b.alerts != "" {
		matchers += ", " + b.alerts
	}
	return "ALERTS{" + matchers + "}"
}

// annotation marks when alerts fire, in all panels that have a time axis.
func (b *board) annotation() object {
	return object{
		"datasource": prometheus(), "enable": true, "expr": inCluster(b.alertSeries()), "hide": false, "iconColor": "red", "name": "Alerts",
		"step": "60s", "tagKeys": "severity", "textFormat": "{{node}} {{reason}}", "titleFormat": "{{alertname}}",
	}
}

// alertTable lists the alerts that fire, with their pages. Grafana's own list of alerts needs the
// name of a data source, which these dashboards leave to people.
func (b *board) alertTable(w int) graph {
	return graph{
		kind: rowsOf, w: w, title: "Firing alerts", none: "No alert fires.",
		text:    "The alerts of deploy/alerts that fire now. Each links to its runbook.",
		queries: one(runbookOf("max by (alertname, severity, cluster, node, reason) ("+b.alertSeries()+")"), ""),
		names: map[string]string{
			"alertname": "Alert", "severity": "Severity", "cluster": "Cluster", "node": "Node", "reason": "Reason", "folder": "Folder", "page": "Runbook",
		},
		hidden: []string{"Folder"},
	}
}

// runbookOf adds the labels folder and page to alerts: where the page of each is.
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

// services are the alerts on services of nodes, which have one page together.
const services = "APIServerUnreachable|ContainerRuntimeUnhealthy|DNSUnreachable|KubeProxyUnhealthy|KubeletUnhealthy"

// runbookLink leads from an alert in a table to its page.
func runbookLink() dataLink {
	return dataLink{TargetBlank: true, Title: "Runbook", URL: docs + "${__data.fields.Folder}/${__data.fields.Runbook}.md"}
}

// firingTable lists the problems that fire, with what they affect.
func firingTable(w int, matchers string) graph {
	return graph{
		kind: rowsOf, w: w, title: "Firing problems", none: "No problem fires.",
		text:    "Problems that fire now, with the pod, device or task that each affects: at most 100 per node.",
		queries: one(`max by (cluster, node, severity, reason, subject) (kernosis_problem_info`+matchers+`) == 1`, ""),
		names:   map[string]string{"cluster": "Cluster", "node": "Node", "severity": "Severity", "reason": "Reason", "subject": "Affected"},
	}
}
