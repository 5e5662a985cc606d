package monitoring

// UIDs by which dashboards link to each other.
const (
	uidFleet     = "kernosis-fleet"
	uidNode      = "kernosis-node"
	uidProbes    = "kernosis-probes"
	uidDiagnosis = "kernosis-diagnosis"
	uidKernosis  = "kernosis-self"
)

// fleet returns the dashboard of all nodes.
func fleet() *board {
	toNode := []dataLink{nodeLink("${__field.labels.node}")}
	b := &board{uid: uidFleet, title: "Kernosis / Fleet", description: "All nodes: firing problems, and whether detection works."}
	b.rows = []row{
		{"Now", append(fleetStats(),
			b.alertTable(12),
			firingTable(12, ""),
			graph{kind: lines, title: "Nodes by condition", text: "Number of nodes on which each condition is True.", none: "No condition was True in this range.", stack: true,
				queries: one(`sum by (type) (kernosis_condition{status="True"}) > 0`, "{{type}}")},
			graph{kind: bars, title: "Problems by reason", text: "Occurrences of problems, temporary and permanent.", none: "No problem occurred in this range.",
				queries: one(`sum by (reason) (increase(problem_counter[$__rate_interval])) > 0`, "{{reason}}")},
			graph{kind: words, title: "Next step", text: "Explain a node or a pod, with causes, evidence and what to do:\n\n```\nkubectl kernosis why node NODE\nkubectl kernosis why pod -n NAMESPACE POD\n```\n\n" +
				"Click a node in a table to open its dashboard. [How to read the answer](" + Docs + "why.md)"},
		)},
		{"Problems by node", fleetProblems(toNode)},
		{"Agents", fleetAgents()},
		{"API server", fleetAPI(toNode)},
	}
	return b
}

func fleetStats() []graph {
	return []graph{
		{kind: stat, title: "Agents", text: "Agents that Prometheus can scrape.", none: "No agent is scraped.", queries: one(`count(kernosis_build_info)`, "agents"), warn: 1, badBelow: true},
		{kind: stat, title: "Silent agents", text: "Agents that stopped renewing their Lease, or never reported. The conditions of their nodes are Unknown.", none: "No controller is scraped.",
			page: "runbooks/KernosisAgentSilent", queries: one(`sum(max by (cluster, state) (kernosis_controller_nodes{state=~"silent|never"}))`, "silent"), crit: 1},
		{kind: stat, title: "Degraded agents", text: "Agents that lack a permission, a path or a BPF program and can't detect every fault.",
			page: "problems/KernosisDegraded", queries: one(`count(max by (cluster, node) (kernosis_degraded) == 1) or vector(0)`, "degraded"), warn: 1},
		{kind: stat, title: "Nodes with a condition", text: "Nodes on which at least one Kernosis condition is True.",
			queries: one(`count(sum by (cluster, node) (kernosis_condition{status="True"}) > 0) or vector(0)`, "nodes"), warn: 1},
		{kind: stat, title: "Problems", text: "Problems that are firing. Temporary problems fire until their quiet period ends.",
			queries: one(`sum(kernosis_problems) or vector(0)`, "problems"), warn: 1},
		{kind: stat, title: "Unknown conditions", text: "Conditions that are Unknown because a source is blind or lost records.", none: "No agent is scraped.",
			page: "runbooks/KernosisConditionUnknown", queries: one(`sum(kernosis_condition{status="Unknown"})`, "conditions"), warn: 1},
	}
}

func fleetProblems(toNode []dataLink) []graph {
	return []graph{
		{kind: lines, w: 12, title: "Problem rate by node", text: "The ten nodes with the most occurrences.", none: "No problem occurred in this range.", links: toNode, unit: "cps",
			queries: one(`topk(10, sum by (cluster, node) (rate(problem_counter[$__rate_interval])) > 0)`, "{{node}} {{cluster}}")},
		{kind: rowsOf, title: "Conditions that are True", text: "Each condition that is True now, with its reason.", none: "No condition is True.",
			queries: one(`max by (cluster, node, type, reason) (problem_gauge) == 1`, ""),
			names:   map[string]string{"cluster": "Cluster", "node": "Node", "type": "Condition", "reason": "Reason"}},
		{kind: rowsOf, title: "Nodes with the most problems", text: "Occurrences in the selected range, by node and reason.", none: "No problem occurred in this range.",
			queries: one(`topk(20, sum by (cluster, node, reason) (increase(problem_counter[$__range])) > 0)`, ""),
			names:   map[string]string{"cluster": "Cluster", "node": "Node", "reason": "Reason"}, value: "Occurrences"},
	}
}

func fleetAgents() []graph {
	return []graph{
		{kind: lines, title: "Agents by state", text: "Agents by state of their Lease, according to the leading controller. Normally all are reporting.", none: "No controller is scraped.", stack: true,
			page: "runbooks/KernosisAgentSilent", queries: one(`max by (cluster, state) (kernosis_controller_nodes) > 0`, "{{state}} {{cluster}}")},
		{kind: bars, title: "Versions", text: "Agents and controllers by version. Two versions are normal during an upgrade.",
			queries: []query{{`count by (version) (kernosis_build_info)`, "agent {{version}}"}, {`count by (version) (kernosis_controller_build_info)`, "controller {{version}}"}}},
		{kind: rowsOf, w: 8, title: "Degraded agents", text: "What each agent lacks. The node condition KernosisDegraded lists the faults that it can't detect.", none: "No agent is degraded.",
			page: "problems/KernosisDegraded", queries: one(`max by (cluster, node, part, reason) (kernosis_degraded) == 1`, ""),
			names: map[string]string{"cluster": "Cluster", "node": "Node", "part": "Part", "reason": "Reason"}},
	}
}

func fleetAPI(toNode []dataLink) []graph {
	return []graph{
		{kind: lines, title: "Writes", text: "Requests of agents that write to the API server, by object and outcome.", unit: "reqps",
			queries: one(`sum by (object, outcome) (rate(kernosis_api_writes_total[$__rate_interval])) > 0`, "{{object}} {{outcome}}")},
		{kind: lines, title: "Time since the last Lease renewal", text: "The ten nodes with the oldest renewal; for an agent that has not renewed yet, since it started. 15 s is normal; after 50 s an agent counts as silent.", unit: "s", warn: 30, crit: 50, links: toNode,
			page: "runbooks/KernosisAPINotAcknowledged", queries: one(`topk(10, time() - (max by (cluster, node) (kernosis_api_last_acknowledged_timestamp_seconds{object="lease"})`+
				` or max by (cluster, node) (process_start_time_seconds and on (cluster, job, instance) kernosis_api_writes_total{object="lease"})))`, "{{node}} {{cluster}}")},
		{kind: lines, title: "Report latency", text: "Time from the kernel's timestamp of a fault to the API server's acknowledgement of the condition or Event.", none: "Nothing was reported in this range.", unit: "s",
			queries: []query{
				{`histogram_quantile(0.5, sum by (le, object) (rate(kernosis_report_latency_seconds_bucket[$__rate_interval])))`, "{{object}} p50"},
				{`histogram_quantile(0.99, sum by (le, object) (rate(kernosis_report_latency_seconds_bucket[$__rate_interval])))`, "{{object}} p99"},
			}},
		{kind: lines, title: "Not yet reported", text: "Nodes whose current conditions, and Events whose latest count, are not yet in the API server.",
			page: "runbooks/KernosisConditionsPending", queries: []query{{`sum(kernosis_conditions_pending)`, "nodes"}, {`sum(kernosis_event_series_waiting)`, "Events"}}},
		{kind: bars, title: "Events reported and dropped", text: "Occurrences reported as Events on nodes, and occurrences that no Event counts.",
			page: "runbooks/KernosisEventsDropped",
			queries: []query{
				{`sum(increase(kernosis_events_occurred_total[$__rate_interval]))`, "occurred"},
				{`sum by (reason) (` + rise(`kernosis_events_dropped_total`, `$__rate_interval`) + `) or vector(0)`, "dropped {{reason}}"},
			}},
		{kind: lines, title: "Conditions written by other clients", text: "Condition types that agents leave to another client, by node. Normally 0.", links: toNode, warn: 1,
			page: "runbooks/KernosisConditionContested", queries: one(`max by (cluster, node) (kernosis_conditions_yielded)`, "{{node}} {{cluster}}")},
	}
}
