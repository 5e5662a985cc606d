package grafana

// probes is about probes of pods and of nodes' services.
func probes() *board {
	const of = `namespace=~"$namespace", pod=~"$pod", probe_type=~"$probe_type"`
	return &board{
		uid: uidProbes, title: "Kernosis / Probes", description: "Kubelet's probes of pods: which fail, and why.",
		variables: []variable{
			{name: "namespace", label: "Namespace", metric: "kernosis_probe_results_total", of: "namespace", many: true},
			{name: "pod", label: "Pod", metric: `kernosis_probe_results_total{namespace=~"$namespace"}`, of: "pod", many: true},
			{name: "probe_type", label: "Probe", metric: "kernosis_probe_results_total", of: "probe_type", many: true},
		},
		rows: []row{
			{"Now", []graph{
				{kind: stat, title: "Probes", text: "Probes with their own series.", queries: one(`sum(kernosis_probe_workers)`, "probes")},
				{kind: stat, title: "Failing", text: "Probes that failed in the last 5 min.",
					queries: one(`count(increase(kernosis_probe_results_total{result="failed", `+of+`}[5m]) > 0) or vector(0)`, "failing"), warn: 1},
				{kind: stat, title: "Failures", text: "In the selected range.", queries: one(`sum(increase(kernosis_probe_results_total{result="failed", `+of+`}[$__range]))`, "failures"), warn: 1},
				{kind: stat, title: "Failure ratio", text: "In the selected range.", unit: "percentunit", warn: 0.01, crit: 0.1,
					queries: one(`sum(increase(kernosis_probe_results_total{result="failed", `+of+`}[$__range])) / sum(increase(kernosis_probe_results_total{`+of+`}[$__range]))`, "failed")},
				{kind: stat, title: "Without series", text: "Probes beyond the limit of series.",
					queries: one(`sum(increase(kernosis_probe_results_overflowed_total[$__range]))`, "results"), warn: 1},
				{kind: stat, title: "Services unhealthy", text: "Services of nodes.", queries: one(`count(kernosis_service_up == 0) or vector(0)`, "services"), crit: 1},
			}},
			{"Results", []graph{
				{kind: lines, w: 12, title: "Results", text: "unknown: the probe could not run, or kubelet may not have counted its failure.", unit: "ops",
					queries: one(`sum by (probe_type, result) (rate(kernosis_probe_results_total{`+of+`}[$__rate_interval]))`, "{{probe_type}} {{result}}")},
				{kind: lines, w: 12, title: "Failures by pod", text: "The ten highest.", unit: "ops",
					queries: one(`topk(10, sum by (namespace, pod) (rate(kernosis_probe_results_total{result="failed", `+of+`}[$__rate_interval])) > 0)`, "{{namespace}}/{{pod}}")},
				{kind: rowsOf, w: 24, title: "Probes that fail", text: "In the selected range; the pod's Events have the cause.",
					queries: one(`topk(50, sum by (node, namespace, pod, container, probe_type) (increase(kernosis_probe_results_total{result="failed", `+of+`}[$__range])) > 0)`, ""),
					names:   map[string]string{"node": "Node", "namespace": "Namespace", "pod": "Pod", "container": "Container", "probe_type": "Probe"}, value: "Failures"},
			}},
			{"Verdicts", []graph{
				{kind: bars, w: 12, title: "Why probes failed", text: "Problems with probes, by reason; each reason has a page in docs/problems.",
					queries: one(`sum by (reason) (increase(problem_counter{reason=~"Probe.*"}[$__rate_interval])) > 0`, "{{reason}}")},
				{kind: rowsOf, title: "By node", text: "In the selected range.",
					queries: one(`topk(50, sum by (node, reason) (increase(problem_counter{reason=~"Probe.*"}[$__range])) > 0)`, ""),
					names:   map[string]string{"node": "Node", "reason": "Reason"}, value: "Occurrences"},
			}},
			{"Services of nodes", []graph{
				{kind: lines, title: "Probes of services", text: "By result.", unit: "ops",
					queries: one(`sum by (service, result) (rate(kernosis_service_probes_total[$__rate_interval])) > 0`, "{{service}} {{result}}")},
				{kind: lines, title: "How long they take", text: "The slowest node.", unit: "s",
					queries: one(`max by (service) (kernosis_service_probe_seconds)`, "{{service}}")},
				{kind: rowsOf, w: 8, title: "Services", text: "1: healthy, 0: unhealthy.",
					queries: one(`min by (node, service) (kernosis_service_up)`, ""), names: map[string]string{"node": "Node", "service": "Service"}, value: "Up"},
			}},
			{"How probes are seen", []graph{
				{kind: lines, title: "Observations", text: "Observed probe connections and failures counted by kubelet, by outcome.", unit: "ops",
					queries: one(`sum by (outcome) (rate(kernosis_probe_observations_total[$__rate_interval])) > 0`, "{{outcome}}")},
				{kind: lines, title: "Requests", text: "To kubelet for its counters, to the API server for kubelet's Events.", unit: "reqps",
					queries: []query{
						{`sum by (outcome) (rate(kernosis_probe_kubelet_polls_total[$__rate_interval]))`, "kubelet {{outcome}}"},
						{`sum by (outcome) (rate(kernosis_probe_event_lists_total[$__rate_interval]))`, "Events {{outcome}}"},
					}},
				{kind: lines, title: "Addresses and probes", text: "Watched addresses, network probes that target a name (not watched), and counted probes.",
					queries: []query{{`sum by (state) (kernosis_probe_places)`, "{{state}}"}, {`sum by (probe_type, feed) (kernosis_probe_workers)`, "{{probe_type}}, {{feed}}"}}},
			}},
		},
	}
}
