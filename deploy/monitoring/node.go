package monitoring

// ofNode selects the chosen node.
const ofNode = `node="$node"`

// node returns the dashboard of one node.
func node() *board {
	b := &board{
		uid: uidNode, title: "Kernosis / Node", description: "One node: its problems and conditions, what was reported, and its agent.", alerts: ofNode,
		variables: []variable{{name: "node", label: "Node", metric: "kernosis_build_info", of: "node"}},
	}
	status := mapped(map[string][2]string{"0": {"False", "green"}, "1": {"True", "red"}, "2": {"Unknown", "text"}})
	b.rows = []row{
		{"Now", append(nodeStats(),
			b.alertTable(12),
			firingTable(12, "{"+ofNode+"}"),
			graph{kind: states, w: 16, title: "Conditions", text: "Each condition over time. Unknown: no problem was detected, but a source is blind.", mappings: status,
				queries: one(`sum by (type) (kernosis_condition{node="$node", status="True"}) + 2 * sum by (type) (kernosis_condition{node="$node", status="Unknown"})`, "{{type}}")},
			graph{kind: words, title: "Next step", text: "Explain this node, with causes, evidence and what to do:\n\n```\nkubectl kernosis why node ${node}\n```\n\n" +
				"[How to read the answer](" + Docs + "why.md)"},
			graph{kind: bars, w: 24, title: "Problems by reason", text: "Occurrences of problems on this node.", none: "No problem occurred in this range.",
				queries: one(`sum by (reason) (increase(problem_counter{node="$node"}[$__rate_interval])) > 0`, "{{reason}}")},
		)},
		{"Kernel faults", nodeFaults()},
		{"Reports", nodeReports()},
		{"Services and Diagnoses", nodeServices()},
		{"Agent", nodeAgent()},
	}
	return b
}

func nodeStats() []graph {
	return []graph{
		{kind: stat, title: "Conditions True", text: "Kernosis conditions of this node that are True.", none: "The agent is not scraped.", queries: one(`sum(kernosis_condition{node="$node", status="True"})`, "True"), crit: 1},
		{kind: stat, title: "Conditions Unknown", text: "Conditions that are Unknown because a source is blind or lost records.", none: "The agent is not scraped.",
			page: "runbooks/KernosisConditionUnknown", queries: one(`sum(kernosis_condition{node="$node", status="Unknown"})`, "Unknown"), warn: 1},
		{kind: stat, title: "Problems", text: "Problems that are firing. Temporary problems fire until their quiet period ends.", queries: one(`sum(kernosis_problems{node="$node"}) or vector(0)`, "problems"), warn: 1},
		{kind: stat, title: "Blind sources", text: "Sources that can't detect their faults.", page: "runbooks/KernosisSourceDown", queries: one(`count(kernosis_source_up{node="$node"} == 0) or vector(0)`, "blind"), warn: 1},
		{kind: stat, title: "Lost records", text: "Kernel records and log lines that were lost in the selected range.", page: "problems/RecordsLost",
			queries: one(`sum(`+rise(`kernosis_records_lost_total{node="$node"}`, `$__range`)+`) or vector(0)`, "lost"), warn: 1},
		{kind: stat, title: "Last Lease renewal", text: "Time since the agent last renewed its Lease, or since it started if it has not renewed yet. 15 s is normal; after 50 s the agent counts as silent.", none: "No agent with a Lease is scraped.", unit: "s", warn: 30, crit: 50,
			page: "runbooks/KernosisAPINotAcknowledged", queries: one(`time() - (max(kernosis_api_last_acknowledged_timestamp_seconds{node="$node", object="lease"})`+
				` or max(process_start_time_seconds and on (cluster, job, instance) kernosis_api_writes_total{node="$node", object="lease"}))`, "lease")},
	}
}

func nodeFaults() []graph {
	events := func(title, text, kinds string) graph {
		return graph{kind: bars, w: 6, title: title, text: text, none: "None in this range.",
			queries: one(`sum by (kind) (increase(kernosis_events_total{node="$node", kind=~"`+kinds+`"}[$__rate_interval]))`, "{{kind}}")}
	}
	return []graph{
		events("OOM kills", "Processes that the kernel killed for memory, including child processes of containers.", "oomkill"),
		events("Disks, filesystems and hardware", "Failed requests, stalled devices, filesystems with errors or that refuse writes, and errors of CPUs, memory, PCI Express and network cards.", "diskio|diskstall|diskstall.resumed|fserror|hwerror|mount.readonly|mount.writable"),
		events("Hung tasks", "Tasks found blocked, and tasks that continued.", "hungtask|hungtask.resumed"),
		events("Probes and connections", "Probes and connections to targets that failed and recovered.", "probe|probe.recovered|sockfail|sockfail.recovered"),
		{kind: lines, w: 24, title: "Firing problems by rule", text: "Problems that were firing, by rule.", none: "No problem fired in this range.", stack: true,
			queries: one(`max by (rule) (kernosis_problems{node="$node"})`, "{{rule}}")},
	}
}

func nodeReports() []graph {
	return []graph{
		{kind: bars, title: "Events", text: "Occurrences to report in Events on the node, by rule.", none: "No Event in this range.",
			queries: one(`sum by (rule) (increase(kernosis_events_occurred_total{node="$node"}[$__rate_interval])) > 0`, "{{rule}}")},
		{kind: bars, title: "Dropped Events", text: "Occurrences that no Event counts, or that are missing from the pod's Event. Normally none.", page: "runbooks/KernosisEventsDropped",
			queries: []query{
				{`sum by (rule, reason) (` + rise(`kernosis_events_dropped_total{node="$node"}`, `$__rate_interval`) + `) or vector(0)`, "{{rule}} {{reason}}"},
				{`sum by (rule, reason) (` + rise(`kernosis_events_not_on_pod_total{node="$node"}`, `$__rate_interval`) + `) or vector(0)`, "not on the pod: {{rule}} {{reason}}"},
			}},
		{kind: lines, title: "Writes", text: "Requests of this agent that write to the API server, by object and outcome.", unit: "reqps",
			queries: one(`sum by (object, outcome) (rate(kernosis_api_writes_total{node="$node"}[$__rate_interval])) > 0`, "{{object}} {{outcome}}")},
		{kind: heat, w: 12, title: "Detection latency", text: "Time from the kernel's timestamp of a fault until the agent has recorded and printed it.", none: "No fault in this range.", unit: "s",
			queries: one(`sum by (le) (increase(kernosis_detection_latency_seconds_bucket{node="$node"}[$__rate_interval]))`, "")},
		{kind: heat, w: 12, title: "Report latency", text: "Time from the kernel's timestamp of a fault to the API server's acknowledgement of the condition or Event.", none: "Nothing was reported in this range.", unit: "s",
			queries: one(`sum by (le) (increase(kernosis_report_latency_seconds_bucket{node="$node"}[$__rate_interval]))`, "")},
	}
}

func nodeServices() []graph {
	return []graph{
		{kind: states, w: 12, title: "Services", text: "Services of the node that the agent probes. A service is shown once it has been healthy.", none: "No service was healthy in this range.", page: "runbooks/ServiceUnhealthy",
			mappings: mapped(map[string][2]string{"0": {"unhealthy", "red"}, "1": {"healthy", "green"}}),
			queries:  one(`max by (service) (kernosis_service_up{node="$node"})`, "{{service}}")},
		{kind: bars, w: 12, title: "Diagnoses", text: "Completed Diagnoses, by phase.", none: "No Diagnosis in this range.",
			queries: one(`sum by (phase) (increase(kernosis_diagnoses_ended_total{node="$node"}[$__rate_interval])) > 0`, "{{phase}}")},
	}
}

func nodeAgent() []graph {
	return []graph{
		{kind: lines, title: "CPU", text: "CPU time of the agent, as a share of one CPU.", unit: "percentunit",
			queries: one(`max by (instance) (rate(process_cpu_seconds_total[$__rate_interval]) and on (cluster, job, instance) kernosis_build_info{node="$node"})`, "{{instance}}")},
		{kind: lines, title: "Memory", text: "Resident memory of the agent. About 50 MiB is normal.", unit: "bytes", page: "runbooks/KernosisAgentMemory",
			queries: one(`max by (instance) (process_resident_memory_bytes and on (cluster, job, instance) kernosis_build_info{node="$node"})`, "{{instance}}")},
		{kind: lines, title: "Journal", text: "Size of the journal on disk, which is limited by journal-mib.", unit: "bytes", queries: one(`max(kernosis_journal_bytes{node="$node"})`, "journal")},
		{kind: states, w: 24, title: "Sources", text: "Whether each source can detect its faults.", mappings: mapped(map[string][2]string{"0": {"blind", "red"}, "1": {"up", "green"}}),
			page: "runbooks/KernosisSourceDown", queries: one(`max by (stem) (kernosis_source_up{node="$node"})`, "{{stem}}")},
	}
}
