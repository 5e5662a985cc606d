package grafana

// Names by which dashboards lead to each other.
const (
	uidFleet     = "kernosis-fleet"
	uidNode      = "kernosis-node"
	uidProbes    = "kernosis-probes"
	uidDiagnosis = "kernosis-diagnosis"
	uidKernosis  = "kernosis-self"
)

// fleet is about all nodes.
func fleet() *board {
	toNode := []dataLink{nodeLink("${__field.labels.node}")}
	return &board{
		uid: uidFleet, title: "Kernosis / Fleet", description: "All nodes: active problems, and whether detection works.",
		rows: []row{
			{"Now", []graph{
				{kind: stat, title: "Agents", text: "Agents that Prometheus can scrape.", queries: one(`count(kernosis_build_info)`, "agents"), warn: 1, badBelow: true},
				{kind: stat, title: "Agents silent", text: "Agents that stopped renewing their Lease or never reported. Their conditions are Unknown.",
					queries: one(`max(sum without (state) (kernosis_controller_nodes{state=~"silent|never"}))`, "silent"), crit: 1},
				{kind: stat, title: "Agents degraded", text: "Agents that miss a permission, a path or a BPF program and can't detect everything.",
					queries: one(`count(max by (node) (kernosis_degraded) == 1) or vector(0)`, "degraded"), warn: 1},
				{kind: stat, title: "Nodes with a condition", text: "Nodes with a Kernosis condition that is True.",
					queries: one(`count(sum by (node) (kernosis_condition{status="True"}) > 0) or vector(0)`, "nodes"), warn: 1},
				{kind: stat, title: "Problems firing", text: "Problems firing now; temporary ones until their quiet period ends.",
					queries: one(`sum(kernosis_problems) or vector(0)`, "problems"), warn: 1},
				{kind: stat, title: "Conditions unknown", text: "Conditions that are Unknown: a source is blind or lost records.",
					queries: one(`sum(kernosis_condition{status="Unknown"})`, "conditions"), warn: 1},
			}},
			{"Problems", []graph{
				{kind: lines, title: "Nodes by condition", text: "Number of nodes with each condition True. Empty while there is none.", stack: true,
					queries: one(`sum by (type) (kernosis_condition{status="True"}) > 0`, "{{type}}")},
				{kind: bars, title: "Problems by reason", text: "Occurrences of problems, temporary and permanent ones.",
					queries: one(`sum by (reason) (increase(problem_counter[$__rate_interval])) > 0`, "{{reason}}")},
				{kind: lines, title: "Problems by node", text: "Nodes with the highest rate of occurrences.", links: toNode,
					queries: one(`topk(10, sum by (node) (rate(problem_counter[$__rate_interval])) > 0)`, "{{node}}"), unit: "cps"},
				{kind: rowsOf, title: "Conditions that are True", text: "With their reasons.",
					queries: one(`max by (node, type, reason) (problem_gauge) == 1`, ""),
					names:   map[string]string{"node": "Node", "type": "Condition", "reason": "Reason"}},
				{kind: rowsOf, title: "Top nodes", text: "Problem occurrences in the selected range.",
					queries: one(`topk(20, sum by (node, reason) (increase(problem_counter[$__range])) > 0)`, ""),
					names:   map[string]string{"node": "Node", "reason": "Reason"}, value: "Occurrences"},
			}},
			{"Agents", []graph{
				{kind: lines, title: "Agents by state", text: "The leading controller's view of their Leases. Normally all are reporting.", stack: true,
					queries: one(`max by (state) (kernosis_controller_nodes) > 0`, "{{state}}")},
				{kind: bars, title: "Versions", text: "Agents by version; two during an upgrade.",
					queries: []query{{`count by (version) (kernosis_build_info)`, "agent {{version}}"}, {`count by (version) (kernosis_controller_build_info)`, "controller {{version}}"}}},
				{kind: rowsOf, w: 8, title: "Degraded", text: "What agents miss; the node condition KernosisDegraded lists what is not detected.",
					queries: one(`max by (node, part, reason) (kernosis_degraded) == 1`, ""),
					names:   map[string]string{"node": "Node", "part": "Part", "reason": "Reason"}},
			}},
			{"The API server", []graph{
				{kind: lines, title: "Writes", text: "Writes of agents, by outcome.", unit: "reqps",
					queries: one(`sum by (object, outcome) (rate(kernosis_api_writes_total[$__rate_interval])) > 0`, "{{object}} {{outcome}}")},
				{kind: lines, title: "Since the last Lease renewal", text: "Nodes with the oldest renewal. 15 s is normal; after 50 s an agent counts as silent.", unit: "s", warn: 30, crit: 50, links: toNode,
					queries: one(`topk(10, time() - max by (node) (kernosis_api_last_acknowledged_timestamp_seconds{object="lease"}))`, "{{node}}")},
				{kind: lines, title: "From the fault to the API server", text: "How long conditions and Events take from the kernel's stamp to the API server's acknowledgement.", unit: "s",
					queries: []query{
						{`histogram_quantile(0.5, sum by (le, object) (rate(kernosis_report_latency_seconds_bucket[$__rate_interval])))`, "{{object}}, half"},
						{`histogram_quantile(0.99, sum by (le, object) (rate(kernosis_report_latency_seconds_bucket[$__rate_interval])))`, "{{object}}, 99 %"},
					}},
				{kind: lines, title: "Not reported yet", text: "Nodes whose conditions, and Events whose latest count, are not yet in the API server.",
					queries: []query{{`sum(kernosis_conditions_pending)`, "nodes"}, {`sum(kernosis_event_series_waiting)`, "Events"}}},
				{kind: bars, title: "Events reported and dropped", text: "Occurrences reported as Events on nodes, and those that no Event counts.",
					queries: []query{
						{`sum(increase(kernosis_events_told_total[$__rate_interval]))`, "reported"},
						{`sum by (reason) (` + rise(`kernosis_events_dropped_total`, `$__rate_interval`) + `) or vector(0)`, "dropped {{reason}}"},
					}},
				{kind: lines, title: "Conditions that others write", text: "Condition types left to another client, by node. Normally 0.", links: toNode, warn: 1,
					queries: one(`max by (node) (kernosis_conditions_yielded)`, "{{node}}")},
			}},
		},
	}
}
