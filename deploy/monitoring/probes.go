package monitoring

// ofProbes selects the chosen pods and types of probes.
const ofProbes = `namespace=~"$namespace", pod=~"$pod", probe_type=~"$probe_type"`

// probes returns the dashboard of the probes of pods and of nodes' services.
func probes() *board {
	b := &board{
		uid: uidProbes, title: "Kernosis / Probes", description: "Kubelet's probes of pods: which fail, and why.", alerts: `alertname=~"Probe.*"`,
		variables: []variable{
			{name: "namespace", label: "Namespace", metric: "kernosis_probe_results_total", of: "namespace", many: true},
			{name: "pod", label: "Pod", metric: `kernosis_probe_results_total{namespace=~"$namespace"}`, of: "pod", many: true},
			{name: "probe_type", label: "Probe", metric: "kernosis_probe_results_total", of: "probe_type", many: true},
		},
	}
	b.rows = []row{
		{"Now", append(probeStats(),
			graph{kind: rowsOf, w: 16, title: "Failing probes", text: "Probes that failed in the selected range. The pod's Events state the cause.", none: "No probe failed in this range.",
				queries: one(`topk(50, sum by (cluster, node, namespace, pod, container, probe_type) (increase(kernosis_probe_results_total{result="failed", `+ofProbes+`}[$__range])) > 0)`, ""),
				names:   map[string]string{"cluster": "Cluster", "node": "Node", "namespace": "Namespace", "pod": "Pod", "container": "Container", "probe_type": "Probe"}, value: "Failures"},
			graph{kind: words, title: "Next step", text: "Explain why the probes of a pod fail:\n\n```\nkubectl kernosis why pod -n NAMESPACE POD\n```\n\nKernosis watches kubelet's probes and sends none of its own. [Probes](" + Docs + "probes.md)"},
			graph{kind: bars, w: 12, title: "Causes of failed probes", text: "Failed probes by reason. Each reason has a page in docs/problems.", none: "No probe failed in this range.",
				queries: one(`sum by (reason) (increase(problem_counter{reason=~"Probe.*"}[$__rate_interval])) > 0`, "{{reason}}")},
			b.alertTable(12),
		)},
		{"Results", probeResults()},
		{"Services of nodes", probeServices()},
		{"Observation of probes", probeObservation()},
	}
	return b
}

func probeStats() []graph {
	return []graph{
		{kind: stat, title: "Probes", text: "Probes that have their own series.", none: "No probe is counted.", queries: one(`sum(kernosis_probe_workers)`, "probes")},
		{kind: stat, title: "Failing", text: "Probes that failed in the last 5 min.",
			queries: one(`count(increase(kernosis_probe_results_total{result="failed", `+ofProbes+`}[5m]) > 0) or vector(0)`, "failing"), warn: 1},
		{kind: stat, title: "Failures", text: "Failed probes in the selected range.", none: "No probe is counted.", queries: one(`sum(increase(kernosis_probe_results_total{result="failed", `+ofProbes+`}[$__range]))`, "failures"), warn: 1},
		{kind: stat, title: "Failure ratio", text: "Share of probes in the selected range that failed.", none: "No probe is counted.", unit: "percentunit", warn: 0.01, crit: 0.1,
			queries: one(`sum(increase(kernosis_probe_results_total{result="failed", `+ofProbes+`}[$__range])) / sum(increase(kernosis_probe_results_total{`+ofProbes+`}[$__range]))`, "failed")},
		{kind: stat, title: "Results without series", text: "Results of probes beyond the limit of series, which the panels by pod omit.", none: "0",
			queries: one(`sum(increase(kernosis_probe_results_overflowed_total[$__range]))`, "results"), warn: 1},
		{kind: stat, title: "Unhealthy services", text: "Services of nodes, such as kubelet, that fail their probes.", page: "runbooks/ServiceUnhealthy", queries: one(`count(kernosis_service_up == 0) or vector(0)`, "services"), crit: 1},
	}
}

func probeResults() []graph {
	return []graph{
		{kind: lines, w: 12, title: "Results", text: "Probes by type and result. unknown: the probe could not run, or kubelet may not have counted its failure.", unit: "ops",
			queries: one(`sum by (probe_type, result) (rate(kernosis_probe_results_total{`+ofProbes+`}[$__rate_interval]))`, "{{probe_type}} {{result}}")},
		{kind: lines, w: 12, title: "Failures by pod", text: "The ten pods with the most failures.", none: "No probe failed in this range.", unit: "ops",
			queries: one(`topk(10, sum by (cluster, namespace, pod) (rate(kernosis_probe_results_total{result="failed", `+ofProbes+`}[$__rate_interval])) > 0)`, "{{namespace}}/{{pod}} {{cluster}}")},
		{kind: rowsOf, w: 24, title: "Causes by node", text: "Failed probes in the selected range, by node and reason.", none: "No probe failed in this range.",
			queries: one(`topk(50, sum by (cluster, node, reason) (increase(problem_counter{reason=~"Probe.*"}[$__range])) > 0)`, ""),
			names:   map[string]string{"cluster": "Cluster", "node": "Node", "reason": "Reason"}, value: "Occurrences"},
	}
}

func probeServices() []graph {
	return []graph{
		{kind: lines, title: "Probes of services", text: "Probes of services of nodes, by service and result.", unit: "ops",
			queries: one(`sum by (service, result) (rate(kernosis_service_probes_total[$__rate_interval])) > 0`, "{{service}} {{result}}")},
		{kind: lines, title: "Duration", text: "Duration of the latest probe of each service, on the slowest node.", unit: "s",
			queries: one(`max by (service) (kernosis_service_probe_seconds)`, "{{service}}")},
		{kind: rowsOf, w: 8, title: "Services", text: "Services of each node. 1: healthy, 0: unhealthy.", none: "No service has been healthy yet.", page: "runbooks/ServiceUnhealthy",
			queries: one(`min by (cluster, node, service) (kernosis_service_up)`, ""), names: map[string]string{"cluster": "Cluster", "node": "Node", "service": "Service"}, value: "Up"},
	}
}

func probeObservation() []graph {
	return []graph{
		{kind: lines, title: "Observations", text: "Observed probe connections and failures counted by kubelet, by outcome.", unit: "ops",
			queries: one(`sum by (outcome) (rate(kernosis_probe_observations_total[$__rate_interval])) > 0`, "{{outcome}}")},
		{kind: lines, title: "Requests", text: "Requests of agents to kubelet for its counters, and to the API server for kubelet's Events.", unit: "reqps",
			queries: []query{
				{`sum by (outcome) (rate(kernosis_probe_kubelet_polls_total[$__rate_interval]))`, "kubelet {{outcome}}"},
				{`sum by (outcome) (rate(kernosis_probe_event_lists_total[$__rate_interval]))`, "Events {{outcome}}"},
			}},
		{kind: lines, title: "Addresses and probes", text: "Watched addresses, network probes to a host name (which are not watched), and counted probes.",
			queries: []query{{`sum by (state) (kernosis_probe_places)`, "{{state}}"}, {`sum by (probe_type, feed) (kernosis_probe_workers)`, "{{probe_type}} {{feed}}"}}},
	}
}
