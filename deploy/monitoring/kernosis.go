package monitoring

// kernosis returns the dashboard of Kernosis itself.
func kernosis() *board {
	toNode := []dataLink{nodeLink("${__field.labels.node}")}
	b := &board{
		uid: uidKernosis, title: "Kernosis / Kernosis itself", description: "Health of agents and controller: losses, cost, backlogs.", alerts: `alertname=~"Kernosis.*"`,
		variables: []variable{{name: "node", label: "Node", metric: "kernosis_build_info", of: "node", many: true}},
	}
	b.rows = []row{
		{"Now", append(selfStats(),
			b.alertTable(16),
			graph{kind: words, title: "Next step", text: "What an agent can't detect, and its log:\n\n```\nkubectl kernosis why node NODE\n" +
				"AGENT=$(kubectl -n kernosis get pods -o name \\\n  -l app.kubernetes.io/component=agent \\\n  --field-selector spec.nodeName=NODE)\nkubectl -n kernosis logs $AGENT --tail=100\n```"},
			graph{kind: lines, title: "Agent memory", text: "The ten agents with the most resident memory. About 50 MiB is normal.", unit: "bytes", links: toNode, page: "runbooks/KernosisAgentMemory",
				queries: one(`topk(10, process_resident_memory_bytes * on (cluster, job, instance) group_left (node) max by (cluster, job, instance, node) (kernosis_build_info{node=~"$node"}))`, "{{node}} {{cluster}}")},
			graph{kind: lines, title: "Agent CPU", text: "The ten agents that use the most CPU time, as a share of one CPU.", unit: "percentunit", links: toNode,
				queries: one(`topk(10, rate(process_cpu_seconds_total[$__rate_interval]) * on (cluster, job, instance) group_left (node) max by (cluster, job, instance, node) (kernosis_build_info{node=~"$node"}))`, "{{node}} {{cluster}}")},
			graph{kind: bars, title: "Lost records", text: "Kernel records and log lines that were lost, by source and reason. Normally none.", page: "problems/RecordsLost",
				queries: one(`sum by (stem, reason) (`+rise(`kernosis_records_lost_total{node=~"$node"}`, `$__rate_interval`)+`) or vector(0)`, "{{stem}} {{reason}}")},
		)},
		{"Detection", selfDetection()},
		{"Losses and blind sources", selfLosses()},
		{"Journal and logs", selfJournal(toNode)},
		{"API server", selfAPI()},
		{"Reports and checks", selfChecks()},
		{"Controller", selfController()},
	}
	return b
}

func selfStats() []graph {
	return []graph{
		{kind: stat, title: "Agents", text: "Agents that Prometheus can scrape.", none: "No agent is scraped.", page: "runbooks/KernosisAgentsAbsent", queries: one(`count(kernosis_build_info{node=~"$node"})`, "agents"), warn: 1, badBelow: true},
		{kind: stat, title: "Agent starts", text: "Agent starts in the selected range. An upgrade restarts each agent once.", none: "No agent is scraped.", page: "runbooks/KernosisAgentRestarts",
			queries: one(`sum(changes(process_start_time_seconds[$__range]) and on (cluster, job, instance) kernosis_build_info{node=~"$node"})`, "starts")},
		{kind: stat, title: "Blind sources", text: "Sources of all agents that can't detect their faults.", page: "runbooks/KernosisSourceDown", queries: one(`count(kernosis_source_up{node=~"$node"} == 0) or vector(0)`, "sources"), warn: 1},
		{kind: stat, title: "Degraded agents", text: "Agents that lack a permission, a path or a BPF program and can't detect every fault.", page: "problems/KernosisDegraded",
			queries: one(`count(max by (cluster, node) (kernosis_degraded{node=~"$node"}) == 1) or vector(0)`, "agents"), warn: 1},
		{kind: stat, title: "Controllers", text: "Controllers that Prometheus can scrape.", none: "No controller is scraped.", page: "runbooks/KernosisControllerAbsent", queries: one(`count(kernosis_controller_build_info)`, "controllers"), warn: 1, badBelow: true},
		{kind: stat, title: "Leading controllers", text: "Controllers that lead. Exactly one leads in a cluster.", none: "No controller is scraped.", page: "runbooks/KernosisControllerNoLeader",
			queries: one(`sum(leader_election_master_status and on (cluster, job, instance) kernosis_controller_build_info)`, "leading"), warn: 1, badBelow: true},
	}
}

func selfDetection() []graph {
	return []graph{
		{kind: lines, title: "Events", text: "Events that reached the engine, by kind.", unit: "ops",
			queries: one(`sum by (kind) (rate(kernosis_events_total{node=~"$node"}[$__rate_interval])) > 0`, "{{kind}}")},
		{kind: lines, title: "Rule evaluation", text: "Time to evaluate all rules for one event.", unit: "s",
			queries: []query{
				{`histogram_quantile(0.5, sum by (le) (rate(kernosis_rule_evaluation_seconds_bucket{node=~"$node"}[$__rate_interval])))`, "p50"},
				{`histogram_quantile(0.99, sum by (le) (rate(kernosis_rule_evaluation_seconds_bucket{node=~"$node"}[$__rate_interval])))`, "p99"},
			}},
		{kind: lines, title: "Detection latency", text: "Time from the kernel's timestamp of a fault until the agent has handled it.", none: "No fault in this range.", unit: "s",
			queries: []query{
				{`histogram_quantile(0.5, sum by (le) (rate(kernosis_detection_latency_seconds_bucket{node=~"$node"}[$__rate_interval])))`, "p50"},
				{`histogram_quantile(0.99, sum by (le) (rate(kernosis_detection_latency_seconds_bucket{node=~"$node"}[$__rate_interval])))`, "p99"},
			}},
	}
}

func selfLosses() []graph {
	return []graph{
		{kind: bars, title: "Skipped programs", text: "Runs of BPF programs that the kernel skipped. A skipped run that loses a record also counts as lost.",
			queries: one(`sum by (stem, program) (`+rise(`kernosis_program_skips_total{node=~"$node"}`, `$__rate_interval`)+`) > 0 or vector(0)`, "{{stem}} {{program}}")},
		{kind: lines, title: "Nodes with a blind source", text: "Number of nodes on which each source is blind.", stack: true, page: "runbooks/KernosisSourceDown",
			queries: one(`count by (stem) (kernosis_source_up{node=~"$node"} == 0) or vector(0)`, "{{stem}}")},
		{kind: rowsOf, w: 8, title: "Degraded agents", text: "What each agent lacks.", none: "No agent is degraded.", page: "problems/KernosisDegraded",
			queries: one(`max by (cluster, node, part, reason) (kernosis_degraded{node=~"$node"}) == 1`, ""),
			names:   map[string]string{"cluster": "Cluster", "node": "Node", "part": "Part", "reason": "Reason"}},
		{kind: lines, title: "Rules", text: "Since each agent started: evaluations that failed, events beyond a rule's rate limit or groups, and events of sources beyond the limit of 256.", page: "runbooks/KernosisRuleErrors",
			queries: []query{
				{`sum by (rule) (kernosis_rule_errors{node=~"$node"}) > 0 or vector(0)`, "errors {{rule}}"},
				{`sum by (rule) (kernosis_rule_events_limited{node=~"$node"}) > 0 or vector(0)`, "rate limit {{rule}}"},
				{`sum by (rule) (kernosis_rule_groups_overflowed{node=~"$node"}) > 0 or vector(0)`, "groups {{rule}}"},
				{`sum(kernosis_sources_overflowed{node=~"$node"}) > 0 or vector(0)`, "sources"},
			}},
		{kind: bars, title: "Unwritten output lines", text: "Lines that could not be written to the standard output.",
			queries: one(`sum(increase(kernosis_output_errors_total{node=~"$node"}[$__rate_interval]))`, "lines")},
	}
}

func selfJournal(toNode []dataLink) []graph {
	return []graph{
		{kind: lines, title: "Journal size", text: "The ten largest journals.", unit: "bytes", links: toNode,
			queries: one(`topk(10, max by (cluster, node) (kernosis_journal_bytes{node=~"$node"}))`, "{{node}} {{cluster}}")},
		{kind: lines, title: "Journal entries", text: "Entries that were written and that could not be written, and old segments that were removed.", unit: "ops", page: "runbooks/KernosisJournalNotWritten",
			queries: []query{
				{`sum(rate(kernosis_journal_entries_total{node=~"$node"}[$__rate_interval]))`, "written"},
				{`sum(rate(kernosis_journal_failed_total{node=~"$node"}[$__rate_interval]))`, "failed"},
				{`sum(rate(kernosis_journal_dropped_segments_total{node=~"$node"}[$__rate_interval]))`, "removed segments"},
			}},
		{kind: lines, title: "Log lines", text: "Lines that were read, and lines that matched a rule, by log.", unit: "ops",
			queries: []query{
				{`sum by (log) (rate(kernosis_log_lines_total{node=~"$node"}[$__rate_interval]))`, "{{log}}"},
				{`sum by (log) (rate(kernosis_log_lines_matched_total{node=~"$node"}[$__rate_interval]))`, "{{log}} matched"},
			}},
	}
}

func selfAPI() []graph {
	return []graph{
		{kind: lines, title: "Writes", text: "Writes by object and outcome. written, renewed, created, patched, recreated, done and exists are successes.", unit: "reqps", page: "runbooks/KernosisAPIForbidden",
			queries: one(`sum by (object, outcome) (rate(kernosis_api_writes_total{node=~"$node"}[$__rate_interval])) > 0`, "{{object}} {{outcome}}")},
		{kind: lines, title: "Requests for Diagnoses", text: "Requests for Diagnoses and the objects that they require.", unit: "reqps",
			queries: one(`sum by (verb, resource, outcome) (rate(kernosis_diagnosis_api_requests_total{node=~"$node"}[$__rate_interval])) > 0`, "{{verb}} {{resource}} {{outcome}}")},
		{kind: bars, title: "Opened watches", text: "Watches by resource. Each watch after the first replaces one that ended.", none: "None in this range.",
			queries: one(`sum by (resource) (increase(kernosis_diagnosis_api_watches_total{node=~"$node"}[$__rate_interval]))`, "{{resource}}")},
		{kind: lines, title: "Event series", text: "Events whose count agents still update, and those whose latest count is not yet in the API server.",
			queries: []query{
				{`sum(kernosis_event_series{node=~"$node"})`, "all"},
				{`sum(kernosis_event_series_waiting{node=~"$node"})`, "waiting"},
			}},
		{kind: lines, title: "Condition patches", text: "Size of all condition patches per second.", unit: "Bps",
			queries: one(`sum(rate(kernosis_api_condition_bytes_total{node=~"$node"}[$__rate_interval]))`, "bytes")},
		{kind: bars, title: "Overwritten conditions", text: "Conditions that other clients overwrote, and condition types that agents then left to them.", page: "runbooks/KernosisConditionContested",
			queries: []query{
				{`sum(increase(kernosis_condition_flips_total{node=~"$node"}[$__rate_interval]))`, "overwritten"},
				{`sum(increase(kernosis_condition_contested_total{node=~"$node"}[$__rate_interval]))`, "left to others"},
			}},
	}
}

func selfChecks() []graph {
	return []graph{
		{kind: bars, title: "Reports of problem daemons", text: "Reports by daemon and outcome.", none: "No report in this range.",
			queries: one(`sum by (source, outcome) (increase(kernosis_reports_total{node=~"$node"}[$__rate_interval]))`, "{{source}} {{outcome}}")},
		{kind: bars, title: "Check runs", text: "Runs of check programs, by status.", none: "No check ran in this range.",
			queries: one(`sum by (check, status) (increase(kernosis_check_runs_total{node=~"$node"}[$__rate_interval])) > 0`, "{{check}} {{status}}")},
		{kind: lines, title: "Check duration", text: "95th percentile of the duration of each check.", none: "No check ran in this range.", unit: "s",
			queries: one(`histogram_quantile(0.95, sum by (le, check) (rate(kernosis_check_duration_seconds_bucket{node=~"$node"}[$__rate_interval])))`, "{{check}}")},
	}
}

func selfController() []graph {
	return []graph{
		{kind: states, title: "Leader", text: "Which controller leads. Exactly one leads.", none: "No controller is scraped.", page: "runbooks/KernosisControllerNoLeader",
			mappings: mapped(map[string][2]string{"0": {"standby", "text"}, "1": {"leads", "green"}}),
			queries:  one(`max by (instance) (leader_election_master_status and on (cluster, job, instance) kernosis_controller_build_info)`, "{{instance}}")},
		{kind: lines, title: "Work queues", text: "Objects that wait, by queue.", none: "No controller is scraped.",
			queries: one(`sum by (name) (workqueue_depth and on (cluster, job, instance) kernosis_controller_build_info)`, "{{name}}")},
		{kind: lines, title: "Time in queue", text: "99th percentile of the time that objects wait, by queue.", none: "No controller is scraped.", unit: "s",
			queries: one(`histogram_quantile(0.99, sum by (le, name) (rate(workqueue_queue_duration_seconds_bucket[$__rate_interval]) and on (cluster, job, instance) kernosis_controller_build_info))`, "{{name}}")},
		{kind: lines, title: "Errors", text: "Failures of each part of the controller. They are retried.", none: "No controller is scraped.", unit: "ops", page: "runbooks/KernosisControllerErrors",
			queries: one(`sum by (controller) (rate(controller_runtime_reconcile_errors_total[$__rate_interval]) and on (cluster, job, instance) kernosis_controller_build_info)`, "{{controller}}")},
		{kind: lines, title: "Requests to the API server", text: "Requests of the controller, by method and response code.", none: "No controller is scraped.", unit: "reqps",
			queries: one(`sum by (method, code) (rate(rest_client_requests_total[$__rate_interval]) and on (cluster, job, instance) kernosis_controller_build_info)`, "{{method}} {{code}}")},
		{kind: lines, title: "Node writes", text: "Patches of Nodes for silent agents, by outcome.", none: "None in this range.", unit: "reqps",
			queries: one(`sum by (outcome) (rate(kernosis_controller_writes_total[$__rate_interval]))`, "{{outcome}}")},
		{kind: bars, title: "Delayed writes", text: "Node writes that waited because of a zone outage, or because the API server throttled them.", none: "None in this range.", page: "runbooks/KernosisManyAgentsSilent",
			queries: one(`sum by (reason) (increase(kernosis_controller_write_waits_total[$__rate_interval]))`, "{{reason}}")},
		{kind: lines, title: "Memory", text: "Resident memory of each controller.", none: "No controller is scraped.", unit: "bytes",
			queries: one(`max by (instance) (process_resident_memory_bytes and on (cluster, job, instance) kernosis_controller_build_info)`, "{{instance}}")},
		{kind: lines, title: "Trigger state", text: "Size of the ConfigMap with the state of Triggers; at most 900 KiB.", none: "No state was saved.", unit: "bytes", crit: 921600, page: "runbooks/KernosisTriggerStateNotSaved",
			queries: one(`max(kernosis_trigger_state_bytes)`, "state")},
	}
}
