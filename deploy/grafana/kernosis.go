package grafana

// kernosis is about Kernosis itself.
func kernosis() *board {
	toNode := []dataLink{nodeLink("${__field.labels.node}")}
	return &board{
		uid: uidKernosis, title: "Kernosis / Kernosis itself", description: "Health of agents and controller: losses, cost, backlogs.",
		variables: []variable{{name: "node", label: "Node", metric: "kernosis_build_info", of: "node", many: true}},
		rows: []row{
			costRow(toNode),
			lossRow(),
			journalRow(toNode),
			apiServerRow(),
			checksRow(),
			controllerRow(),
		},
	}
}

func costRow(toNode []dataLink) row {
	return row{"What agents cost", []graph{
		{kind: lines, title: "Memory", text: "The ten highest. About 50 MiB is normal.", unit: "bytes", links: toNode,
			queries: one(`topk(10, process_resident_memory_bytes * on (job, instance) group_left (node) max by (job, instance, node) (kernosis_build_info{node=~"$node"}))`, "{{node}}")},
		{kind: lines, title: "CPU", text: "The ten highest, in CPU seconds per second.", unit: "percentunit", links: toNode,
			queries: one(`topk(10, rate(process_cpu_seconds_total[$__rate_interval]) * on (job, instance) group_left (node) max by (job, instance, node) (kernosis_build_info{node=~"$node"}))`, "{{node}}")},
		{kind: bars, title: "Starts", text: "Agent starts; an upgrade restarts each agent once.",
			queries: one(`sum(changes(process_start_time_seconds[$__rate_interval]) and on (job, instance) kernosis_build_info{node=~"$node"})`, "starts")},
		{kind: lines, title: "Events", text: "Events that reached the engine, by kind.", unit: "ops",
			queries: one(`sum by (kind) (rate(kernosis_events_total{node=~"$node"}[$__rate_interval])) > 0`, "{{kind}}")},
		{kind: lines, title: "The engine", text: "Time for one event, all rules together.", unit: "s",
			queries: []query{
				{`histogram_quantile(0.5, sum by (le) (rate(kernosis_rule_evaluation_seconds_bucket{node=~"$node"}[$__rate_interval])))`, "half"},
				{`histogram_quantile(0.99, sum by (le) (rate(kernosis_rule_evaluation_seconds_bucket{node=~"$node"}[$__rate_interval])))`, "99 %"},
			}},
		{kind: lines, title: "Detection", text: "From the kernel's stamp of a fault to the end of its handling.", unit: "s",
			queries: []query{
				{`histogram_quantile(0.5, sum by (le) (rate(kernosis_detection_latency_seconds_bucket{node=~"$node"}[$__rate_interval])))`, "half"},
				{`histogram_quantile(0.99, sum by (le) (rate(kernosis_detection_latency_seconds_bucket{node=~"$node"}[$__rate_interval])))`, "99 %"},
			}},
	}}
}

func lossRow() row {
	return row{"What is lost or not seen", []graph{
		{kind: bars, title: "Records lost", text: "By source and reason, described in docs/problems/RecordsLost.md. Normally none.",
			queries: one(`sum by (stem, reason) (`+rise(`kernosis_records_lost_total{node=~"$node"}`, `$__rate_interval`)+`) or vector(0)`, "{{stem}} {{reason}}")},
		{kind: bars, title: "Programs skipped", text: "Runs of BPF programs that the kernel skipped. Those that lose a record count as lost, too.",
			queries: one(`sum by (stem, program) (`+rise(`kernosis_program_skips_total{node=~"$node"}`, `$__rate_interval`)+`) > 0 or vector(0)`, "{{stem}} {{program}}")},
		{kind: lines, title: "Blind sources", text: "Number of nodes.", stack: true,
			queries: one(`count by (stem) (kernosis_source_up{node=~"$node"} == 0) or vector(0)`, "{{stem}}")},
		{kind: rowsOf, w: 8, title: "Degraded", text: "What agents miss.",
			queries: one(`max by (node, part, reason) (kernosis_degraded{node=~"$node"}) == 1`, ""),
			names:   map[string]string{"node": "Node", "part": "Part", "reason": "Reason"}},
		{kind: lines, title: "Rules", text: "Evaluations that ended with an error, events beyond a rule's rate limit and groups, and events of sources beyond the limit of 256, since each agent started.",
			queries: []query{
				{`sum by (rule) (kernosis_rule_errors{node=~"$node"}) > 0 or vector(0)`, "errors {{rule}}"},
				{`sum by (rule) (kernosis_rule_events_limited{node=~"$node"}) > 0 or vector(0)`, "limited {{rule}}"},
				{`sum by (rule) (kernosis_rule_groups_overflowed{node=~"$node"}) > 0 or vector(0)`, "overflow {{rule}}"},
				{`sum(kernosis_sources_overflowed{node=~"$node"}) > 0 or vector(0)`, "overflow of sources"},
			}},
		{kind: bars, title: "Lines not printed", text: "To the standard output.",
			queries: one(`sum(increase(kernosis_output_errors_total{node=~"$node"}[$__rate_interval]))`, "lines")},
	}}
}

func journalRow(toNode []dataLink) row {
	return row{"Journal and logs", []graph{
		{kind: lines, title: "Journals", text: "The largest.", unit: "bytes", links: toNode,
			queries: one(`topk(10, max by (node) (kernosis_journal_bytes{node=~"$node"}))`, "{{node}}")},
		{kind: lines, title: "Entries", text: "Written, and not written.", unit: "ops",
			queries: []query{
				{`sum(rate(kernosis_journal_entries_total{node=~"$node"}[$__rate_interval]))`, "written"},
				{`sum(rate(kernosis_journal_failed_total{node=~"$node"}[$__rate_interval]))`, "failed"},
				{`sum(rate(kernosis_journal_dropped_segments_total{node=~"$node"}[$__rate_interval]))`, "old segments removed"},
			}},
		{kind: lines, title: "Lines of logs", text: "Read, and matched by a rule.", unit: "ops",
			queries: []query{
				{`sum by (log) (rate(kernosis_log_lines_total{node=~"$node"}[$__rate_interval]))`, "{{log}}"},
				{`sum by (log) (rate(kernosis_log_lines_matched_total{node=~"$node"}[$__rate_interval]))`, "{{log}}, matched"},
			}},
	}}
}

func apiServerRow() row {
	return row{"The API server", []graph{
		{kind: lines, title: "Writes by outcome", text: "written, renewed, created, patched, recreated, done and exists are successes.", unit: "reqps",
			queries: one(`sum by (object, outcome) (rate(kernosis_api_writes_total{node=~"$node"}[$__rate_interval])) > 0`, "{{object}} {{outcome}}")},
		{kind: lines, title: "Requests for diagnoses", text: "By resource.", unit: "reqps",
			queries: one(`sum by (verb, resource, outcome) (rate(kernosis_diagnosis_api_requests_total{node=~"$node"}[$__rate_interval])) > 0`, "{{verb}} {{resource}} {{outcome}}")},
		{kind: bars, title: "Watches opened", text: "Each after the first replaces a watch that ended.",
			queries: one(`sum by (resource) (increase(kernosis_diagnosis_api_watches_total{node=~"$node"}[$__rate_interval]))`, "{{resource}}")},
		{kind: lines, title: "Event series", text: "All series, and those whose latest count is not yet in the API server.",
			queries: []query{
				{`sum(kernosis_event_series{node=~"$node"})`, "series"},
				{`sum(kernosis_event_series_waiting{node=~"$node"})`, "waiting"},
			}},
		{kind: lines, title: "Patches of conditions", text: "Bytes a second.", unit: "Bps",
			queries: one(`sum(rate(kernosis_api_condition_bytes_total{node=~"$node"}[$__rate_interval]))`, "bytes")},
		{kind: bars, title: "Conditions overwritten", text: "By other clients, and types left to them.",
			queries: []query{
				{`sum(increase(kernosis_condition_flips_total{node=~"$node"}[$__rate_interval]))`, "written over"},
				{`sum(increase(kernosis_condition_contested_total{node=~"$node"}[$__rate_interval]))`, "left to others"},
			}},
	}}
}

func checksRow() row {
	return row{"Reports and checks", []graph{
		{kind: bars, title: "Reports of problem daemons", text: "By outcome.",
			queries: one(`sum by (source, outcome) (increase(kernosis_reports_total{node=~"$node"}[$__rate_interval]))`, "{{source}} {{outcome}}")},
		{kind: bars, title: "Runs of check programs", text: "By status.",
			queries: one(`sum by (check, status) (increase(kernosis_check_runs_total{node=~"$node"}[$__rate_interval])) > 0`, "{{check}} {{status}}")},
		{kind: lines, title: "How long checks take", text: "95 % of the runs.", unit: "s",
			queries: one(`histogram_quantile(0.95, sum by (le, check) (rate(kernosis_check_duration_seconds_bucket{node=~"$node"}[$__rate_interval])))`, "{{check}}")},
	}}
}

func controllerRow() row {
	return row{"The controller", []graph{
		{kind: states, title: "Who leads", text: "By instance; exactly one leads.", mappings: mapped(map[string][2]string{"0": {"waits", "text"}, "1": {"leads", "green"}}),
			queries: one(`max by (instance) (leader_election_master_status and on (job, instance) kernosis_controller_build_info)`, "{{instance}}")},
		{kind: lines, title: "Work queues", text: "Waiting objects.",
			queries: one(`sum by (name) (workqueue_depth and on (job, instance) kernosis_controller_build_info)`, "{{name}}")},
		{kind: lines, title: "Time in the queues", text: "99 % of the objects.", unit: "s",
			queries: one(`histogram_quantile(0.99, sum by (le, name) (rate(workqueue_queue_duration_seconds_bucket[$__rate_interval]) and on (job, instance) kernosis_controller_build_info))`, "{{name}}")},
		{kind: lines, title: "Errors", text: "By part; failures are retried.", unit: "ops",
			queries: one(`sum by (controller) (rate(controller_runtime_reconcile_errors_total[$__rate_interval]) and on (job, instance) kernosis_controller_build_info)`, "{{controller}}")},
		{kind: lines, title: "Requests to the API server", text: "By response.", unit: "reqps",
			queries: one(`sum by (method, code) (rate(rest_client_requests_total[$__rate_interval]) and on (job, instance) kernosis_controller_build_info)`, "{{method}} {{code}}")},
		{kind: lines, title: "Node writes", text: "For silent agents, by outcome.", unit: "reqps",
			queries: one(`sum by (outcome) (rate(kernosis_controller_writes_total[$__rate_interval]))`, "{{outcome}}")},
		{kind: bars, title: "Delayed writes", text: "Because of a zone outage, or throttled by the API server.",
			queries: one(`sum by (reason) (increase(kernosis_controller_write_waits_total[$__rate_interval]))`, "{{reason}}")},
		{kind: lines, title: "Memory", text: "By instance.", unit: "bytes",
			queries: one(`max by (instance) (process_resident_memory_bytes and on (job, instance) kernosis_controller_build_info)`, "{{instance}}")},
		{kind: lines, title: "State of Triggers", text: "Size of the ConfigMap; at most 900 KiB.", unit: "bytes", crit: 921600,
			queries: one(`max(kernosis_trigger_state_bytes)`, "bytes")},
	}}
}
