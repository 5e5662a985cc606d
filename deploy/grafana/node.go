package grafana

// node is about one node.
func node() *board {
	up := mapped(map[string][2]string{"0": {"blind", "red"}, "1": {"sees", "green"}})
	status := mapped(map[string][2]string{"0": {"False", "green"}, "1": {"True", "red"}, "2": {"Unknown", "text"}})
	events := func(title, text, kinds string) graph {
		return graph{kind: bars, w: 6, title: title, text: text,
			queries: one(`sum by (kind) (increase(kernosis_events_total{node="$node", kind=~"`+kinds+`"}[$__rate_interval]))`, "{{kind}}")}
	}
	return &board{
		uid: uidNode, title: "Kernosis / Node", description: "One node: its conditions and problems, what was reported, and its agent.",
		variables: []variable{{name: "node", label: "Node", metric: "kernosis_build_info", of: "node"}},
		rows: []row{
			{"Now", []graph{
				{kind: stat, title: "Conditions True", text: "Kernosis conditions that are True.", queries: one(`sum(kernosis_condition{node="$node", status="True"})`, "True"), crit: 1},
				{kind: stat, title: "Conditions Unknown", text: "Conditions that are Unknown: a source is blind or lost records.", queries: one(`sum(kernosis_condition{node="$node", status="Unknown"})`, "Unknown"), warn: 1},
				{kind: stat, title: "Problems firing", text: "Problems firing now; temporary ones until their quiet period ends.", queries: one(`sum(kernosis_problems{node="$node"}) or vector(0)`, "problems"), warn: 1},
				{kind: stat, title: "Blind sources", text: "Sources that can't detect their faults.", queries: one(`count(kernosis_source_up{node="$node"} == 0) or vector(0)`, "blind"), warn: 1},
				{kind: stat, title: "Records lost", text: "In the selected range.", queries: one(`sum(`+rise(`kernosis_records_lost_total{node="$node"}`, `$__range`)+`) or vector(0)`, "lost"), warn: 1},
				{kind: stat, title: "Since the last Lease", text: "Time since the agent last renewed its Lease.", unit: "s", warn: 30, crit: 50,
					queries: one(`time() - max(kernosis_api_last_acknowledged_timestamp_seconds{node="$node", object="lease"})`, "lease")},
			}},
			{"Conditions and problems", []graph{
				{kind: states, w: 24, h: 9, title: "Conditions", text: "Each condition over time. Unknown: no problem was detected, but a source is blind.", mappings: status,
					queries: one(`sum by (type) (kernosis_condition{node="$node", status="True"}) + 2 * sum by (type) (kernosis_condition{node="$node", status="Unknown"})`, "{{type}}")},
				{kind: lines, w: 12, title: "Problems firing", text: "By rule.", stack: true,
					queries: one(`max by (rule) (kernosis_problems{node="$node"})`, "{{rule}}")},
				{kind: bars, w: 12, title: "Occurrences", text: "Problem occurrences by reason.",
					queries: one(`sum by (reason) (increase(problem_counter{node="$node"}[$__rate_interval])) > 0`, "{{reason}}")},
			}},
			{"Faults", []graph{
				events("OOM kills", "Processes that the kernel killed for memory, children of containers too.", "oomkill"),
				events("Disks and filesystems", "Requests that failed, devices that stalled, filesystems with errors or that refuse writes.", "diskio|diskstall|diskstall.resumed|fserror|mount.readonly|mount.writable"),
				events("Hung tasks", "Tasks that were found blocked, and those that went on.", "hungtask|hungtask.resumed"),
				events("Probes and connections", "Probes that failed and recovered, and connections to targets.", "probe|probe.recovered|sockfail|sockfail.recovered"),
			}},
			{"What was reported", []graph{
				{kind: bars, title: "Events", text: "Occurrences reported as Events on the node, by rule.",
					queries: one(`sum by (rule) (increase(kernosis_events_told_total{node="$node"}[$__rate_interval])) > 0`, "{{rule}}")},
				{kind: bars, title: "Events dropped", text: "Occurrences missing from Events, or from the pod's Events. Normally none.",
					queries: []query{
						{`sum by (rule, reason) (` + rise(`kernosis_events_dropped_total{node="$node"}`, `$__rate_interval`) + `) or vector(0)`, "{{rule}} {{reason}}"},
						{`sum by (rule, reason) (` + rise(`kernosis_events_not_on_pod_total{node="$node"}`, `$__rate_interval`) + `) or vector(0)`, "not on the pod: {{rule}} {{reason}}"},
					}},
				{kind: lines, title: "Writes", text: "To the API server, by outcome.", unit: "reqps",
					queries: one(`sum by (object, outcome) (rate(kernosis_api_writes_total{node="$node"}[$__rate_interval])) > 0`, "{{object}} {{outcome}}")},
				{kind: heat, w: 12, title: "From the fault to its handling", text: "From the kernel's stamp until it was journaled and printed.", unit: "s",
					queries: one(`sum by (le) (increase(kernosis_detection_latency_seconds_bucket{node="$node"}[$__rate_interval]))`, "")},
				{kind: heat, w: 12, title: "From the fault to the API server", text: "From the kernel's stamp until the API server had acknowledged condition or Event.", unit: "s",
					queries: one(`sum by (le) (increase(kernosis_report_latency_seconds_bucket{node="$node"}[$__rate_interval]))`, "")},
			}},
			{"Services and diagnoses", []graph{
				{kind: states, w: 12, title: "Services", text: "Services of the node that the agent probes, once they have been healthy.",
					mappings: mapped(map[string][2]string{"0": {"unhealthy", "red"}, "1": {"healthy", "green"}}),
					queries:  one(`max by (service) (kernosis_service_up{node="$node"})`, "{{service}}")},
				{kind: bars, w: 12, title: "Diagnoses", text: "Completed, by phase.",
					queries: one(`sum by (phase) (increase(kernosis_diagnoses_ended_total{node="$node"}[$__rate_interval]))`, "{{phase}}")},
			}},
			{"The agent", []graph{
				{kind: lines, title: "CPU", text: "CPU seconds per second.", unit: "percentunit",
					queries: one(`max by (instance) (rate(process_cpu_seconds_total[$__rate_interval]) and on (job, instance) kernosis_build_info{node="$node"})`, "{{instance}}")},
				{kind: lines, title: "Memory", text: "Resident memory; about 50 MiB is normal.", unit: "bytes",
					queries: one(`max by (instance) (process_resident_memory_bytes and on (job, instance) kernosis_build_info{node="$node"})`, "{{instance}}")},
				{kind: lines, title: "Journal", text: "Size on disk (bounded).", unit: "bytes", queries: one(`max(kernosis_journal_bytes{node="$node"})`, "journal")},
				{kind: states, w: 24, title: "Sources", text: "State of each source.", mappings: up,
					queries: one(`max by (stem) (kernosis_source_up{node="$node"})`, "{{stem}}")},
			}},
		},
	}
}
