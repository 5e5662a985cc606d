package grafana

// diagnosis is about diagnoses and repairs.
func diagnosis() *board {
	return &board{
		uid: uidDiagnosis, title: "Kernosis / Diagnosis and remediation", description: "What was diagnosed, and what was repaired or held back.",
		rows: []row{
			{"Now", []graph{
				{kind: stat, title: "Running", text: "Diagnoses with a running operation.", queries: one(`sum(kernosis_diagnoses_running)`, "running")},
				{kind: stat, title: "Waiting", text: "Waiting for a worker, the API server, or a decision.", queries: one(`sum(kernosis_diagnoses_waiting)`, "waiting"), warn: 10},
				{kind: stat, title: "Not reported", text: "Ended, and the API server does not know yet.", queries: one(`sum(kernosis_diagnoses_untold)`, "untold"), warn: 1},
				{kind: stat, title: "Succeeded", text: "Share of diagnoses in the selected range that found a cause.", unit: "percentunit", warn: 0.5, badBelow: true,
					queries: one(`sum(increase(kernosis_diagnoses_ended_total{phase="Succeeded"}[$__range])) / sum(increase(kernosis_diagnoses_ended_total[$__range]))`, "succeeded")},
				{kind: stat, title: "Nodes under repair", text: "Nodes that count against a repair budget.", queries: one(`sum(max by (policy) (kernosis_remediation_slots))`, "nodes"), warn: 1},
				{kind: stat, title: "Triggers ignored", text: "Invalid Triggers, at agents and at the controller.",
					queries: one(`max(kernosis_triggers_refused) + sum(max by (reason) (kernosis_triggers_left_out))`, "triggers"), warn: 1},
			}},
			{"Diagnoses", []graph{
				{kind: bars, title: "Ended", text: "By phase.", queries: one(`sum by (phase) (increase(kernosis_diagnoses_ended_total[$__rate_interval]))`, "{{phase}}")},
				{kind: lines, title: "How long they take", text: "From the report of the problem to the end.", unit: "s",
					queries: []query{
						{`histogram_quantile(0.5, sum by (le) (rate(kernosis_diagnosis_latency_seconds_bucket[$__rate_interval])))`, "half"},
						{`histogram_quantile(0.95, sum by (le) (rate(kernosis_diagnosis_latency_seconds_bucket[$__rate_interval])))`, "95 %"},
					}},
				{kind: heat, title: "Distribution of durations", text: "All diagnoses.", unit: "s",
					queries: one(`sum by (le) (increase(kernosis_diagnosis_latency_seconds_bucket[$__rate_interval]))`, "")},
				{kind: lines, title: "In the cluster", text: "Diagnosis objects by phase.", stack: true, queries: one(`max by (phase) (kernosis_controller_diagnoses)`, "{{phase}}")},
				{kind: bars, title: "Requested by agents' Triggers", text: "By Trigger.",
					queries: one(`sum by (trigger) (increase(kernosis_trigger_diagnoses_total{outcome=""}[$__rate_interval]))`, "{{trigger}}")},
				{kind: bars, title: "Taken, created, dropped", text: "Diagnoses that nodes took from the API server, created themselves, or dropped.",
					queries: []query{
						{`sum(increase(kernosis_diagnoses_taken_total[$__rate_interval]))`, "taken"},
						{`sum(increase(kernosis_diagnoses_made_total[$__rate_interval]))`, "made"},
						{`sum by (reason) (` + rise(`kernosis_diagnoses_dropped_total`, `$__rate_interval`) + `) or vector(0)`, "dropped {{reason}}"},
					}},
				{kind: bars, title: "Withheld", text: "Diagnoses that cooldowns and rate limits of Triggers prevented.",
					queries: one(`sum by (trigger, reason) (`+rise(`kernosis_trigger_withheld_total`, `$__rate_interval`)+`) > 0`, "{{trigger}} {{reason}}")},
				{kind: lines, title: "Status writes", text: "By outcome.", unit: "reqps",
					queries: one(`sum by (outcome) (rate(kernosis_diagnosis_writes_total[$__rate_interval]))`, "{{outcome}}")},
				{kind: bars, title: "Deleted", text: "By the controller, by reason.",
					queries: one(`sum by (reason) (increase(kernosis_controller_diagnoses_deleted_total[$__rate_interval]))`, "{{reason}}")},
			}},
			{"Alerts, Events and times", []graph{
				{kind: bars, title: "Diagnoses created", text: "Requested by the controller's Triggers, by outcome.",
					queries: one(`sum by (trigger, outcome) (increase(kernosis_trigger_diagnoses_total{outcome!=""}[$__rate_interval]))`, "{{trigger}} {{outcome}}")},
				{kind: lines, title: "Queue", text: "Diagnoses waiting to be created; at most 1024.", queries: one(`max(kernosis_trigger_queue_length)`, "queue"), warn: 512, crit: 1024},
				{kind: lines, title: "Triggers in force", text: "By source.", queries: one(`max by (source) (kernosis_triggers)`, "{{source}}")},
				{kind: lines, title: "Requests with alerts", text: "By response.", unit: "reqps",
					queries: one(`sum by (code) (rate(kernosis_alert_requests_total[$__rate_interval]))`, "{{code}}")},
				{kind: bars, title: "Alerts", text: "Accepted and ignored.",
					queries: []query{
						{`sum(increase(kernosis_alerts_received_total[$__rate_interval]))`, "taken"},
						{`sum by (reason) (increase(kernosis_alerts_refused_total[$__rate_interval]))`, "refused, {{reason}}"},
					}},
				{kind: lines, title: "Certificate", text: "Time until the certificate of the alert receiver expires.", unit: "s", warn: 604800, badBelow: true,
					queries: one(`min(kernosis_alert_certificate_expiry_timestamp_seconds) - time()`, "left")},
			}},
			{"Remediation", []graph{
				{kind: bars, title: "Decisions", text: "Counted when it changes: run, dry run, wait, withheld, with the reason.",
					queries: one(`sum by (verb, reason) (`+rise(`kernosis_remediation_decisions_total`, `$__rate_interval`)+`) > 0`, "{{verb}} {{reason}}")},
				{kind: bars, title: "Repairs", text: "Completed repairs.",
					queries: one(`sum by (operation, outcome) (`+rise(`kernosis_remediation_repairs_total`, `$__rate_interval`)+`) > 0`, "{{operation}} {{outcome}}")},
				{kind: bars, title: "Whether they helped", text: "Helped: the problem was gone and the node ready in time. Moot: nothing was proven.",
					queries: one(`sum by (operation, result) (`+rise(`kernosis_remediation_verifications_total`, `$__rate_interval`)+`) > 0`, "{{operation}} {{result}}")},
				{kind: lines, title: "Budgets in use", text: "Nodes under repair or out of service, and the budget.", queries: []query{
					{`max by (policy) (kernosis_remediation_budget_used)`, "{{policy}}"},
					{`max by (policy) (kernosis_remediation_budget_limit)`, "{{policy}}: limit"},
				}},
				{kind: rowsOf, w: 8, title: "Decisions so far", text: "Since the leading controller started.",
					queries: one(`sum by (policy, verb, reason) (kernosis_remediation_decisions_total)`, ""),
					names:   map[string]string{"policy": "Policy", "verb": "Decision", "reason": "Reason"}, value: "Decisions"},
				{kind: rowsOf, w: 8, title: "Repairs so far", text: "Since the leading controller started.",
					queries: one(`sum by (operation, outcome) (kernosis_remediation_repairs_total)`, ""),
					names:   map[string]string{"operation": "Operation", "outcome": "Outcome"}, value: "Repairs"},
			}},
		},
	}
}
