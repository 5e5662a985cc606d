package grafana

// diagnosis is about diagnoses and repairs.
func diagnosis() *board {
	return &board{
		uid: uidDiagnosis, title: "Kernosis / Diagnosis and remediation", description: "What was diagnosed, and what was repaired or held back.",
		rows: []row{
			{"Now", []graph{
				{kind: stat, title: "Running", text: "Diagnoses of which an operation runs.", queries: one(`sum(kernosis_diagnoses_running)`, "running")},
				{kind: stat, title: "Waiting", text: "For others, for the API server, or for a decision.", queries: one(`sum(kernosis_diagnoses_waiting)`, "waiting"), warn: 10},
				{kind: stat, title: "Not told", text: "That have ended, and the API server does not know.", queries: one(`sum(kernosis_diagnoses_untold)`, "untold"), warn: 1},
				{kind: stat, title: "Succeeded", text: "Share of the diagnoses in the chosen time that found a cause.", unit: "percentunit", warn: 0.5, badBelow: true,
					queries: one(`sum(increase(kernosis_diagnoses_ended_total{phase="Succeeded"}[$__range])) / sum(increase(kernosis_diagnoses_ended_total[$__range]))`, "succeeded")},
				{kind: stat, title: "Nodes under repair", text: "That use up a budget.", queries: one(`sum(max by (policy) (kernosis_remediation_slots))`, "nodes"), warn: 1},
				{kind: stat, title: "Triggers left out", text: "At agents and at the controller: something is wrong with them.",
					queries: one(`max(kernosis_triggers_refused) + sum(max by (reason) (kernosis_triggers_left_out))`, "triggers"), warn: 1},
			}},
			{"Diagnoses", []graph{
				{kind: bars, title: "Ended", text: "By phase.", queries: one(`sum by (phase) (increase(kernosis_diagnoses_ended_total[$__rate_interval]))`, "{{phase}}")},
				{kind: lines, title: "How long they take", text: "From the problem's being told to the end.", unit: "s",
					queries: []query{
						{`histogram_quantile(0.5, sum by (le) (rate(kernosis_diagnosis_latency_seconds_bucket[$__rate_interval])))`, "half"},
						{`histogram_quantile(0.95, sum by (le) (rate(kernosis_diagnosis_latency_seconds_bucket[$__rate_interval])))`, "95 %"},
					}},
				{kind: heat, title: "Durations", text: "The same, all of them.", unit: "s",
					queries: one(`sum by (le) (increase(kernosis_diagnosis_latency_seconds_bucket[$__rate_interval]))`, "")},
				{kind: lines, title: "In the cluster", text: "Diagnoses that there are, by phase.", stack: true, queries: one(`max by (phase) (kernosis_controller_diagnoses)`, "{{phase}}")},
				{kind: bars, title: "Asked for by Triggers of agents", text: "By Trigger.",
					queries: one(`sum by (trigger) (increase(kernosis_trigger_diagnoses_total{outcome=""}[$__rate_interval]))`, "{{trigger}}")},
				{kind: bars, title: "Taken, made, dropped", text: "Diagnoses that nodes were to run, that they made known, and that were neither.",
					queries: []query{
						{`sum(increase(kernosis_diagnoses_taken_total[$__rate_interval]))`, "taken"},
						{`sum(increase(kernosis_diagnoses_made_total[$__rate_interval]))`, "made"},
						{`sum by (reason) (` + rise(`kernosis_diagnoses_dropped_total`, `$__rate_interval`) + `) or vector(0)`, "dropped {{reason}}"},
					}},
				{kind: bars, title: "Withheld", text: "That Triggers would have asked for, but for their cooldowns and rate limits.",
					queries: one(`sum by (trigger, reason) (`+rise(`kernosis_trigger_withheld_total`, `$__rate_interval`)+`) > 0`, "{{trigger}} {{reason}}")},
				{kind: lines, title: "Writes of status", text: "By what came of them.", unit: "reqps",
					queries: one(`sum by (outcome) (rate(kernosis_diagnosis_writes_total[$__rate_interval]))`, "{{outcome}}")},
				{kind: bars, title: "Deleted", text: "By the controller, by why.",
					queries: one(`sum by (reason) (increase(kernosis_controller_diagnoses_deleted_total[$__rate_interval]))`, "{{reason}}")},
			}},
			{"Alerts, Events and times", []graph{
				{kind: bars, title: "Diagnoses for them", text: "That Triggers of the controller wanted, by what became of them.",
					queries: one(`sum by (trigger, outcome) (increase(kernosis_trigger_diagnoses_total{outcome!=""}[$__rate_interval]))`, "{{trigger}} {{outcome}}")},
				{kind: lines, title: "Queue", text: "Diagnoses that wait to be made; up to 1024 may.", queries: one(`max(kernosis_trigger_queue_length)`, "queue"), warn: 512, crit: 1024},
				{kind: lines, title: "Triggers in force", text: "By source.", queries: one(`max by (source) (kernosis_triggers)`, "{{source}}")},
				{kind: lines, title: "Requests with alerts", text: "By the answer.", unit: "reqps",
					queries: one(`sum by (code) (rate(kernosis_alert_requests_total[$__rate_interval]))`, "{{code}}")},
				{kind: bars, title: "Alerts", text: "That were taken, and left out.",
					queries: []query{
						{`sum(increase(kernosis_alerts_received_total[$__rate_interval]))`, "taken"},
						{`sum by (reason) (increase(kernosis_alerts_refused_total[$__rate_interval]))`, "refused, {{reason}}"},
					}},
				{kind: lines, title: "Certificate", text: "How long the certificate with which alerts are taken is good for.", unit: "s", warn: 604800, badBelow: true,
					queries: one(`min(kernosis_alert_certificate_expiry_timestamp_seconds) - time()`, "left")},
			}},
			{"Remediation", []graph{
				{kind: bars, title: "Decisions", text: "Each once while it stays the same: run, only observed, waits, withheld; and why.",
					queries: one(`sum by (verb, reason) (`+rise(`kernosis_remediation_decisions_total`, `$__rate_interval`)+`) > 0`, "{{verb}} {{reason}}")},
				{kind: bars, title: "Repairs", text: "That have ended.",
					queries: one(`sum by (operation, outcome) (`+rise(`kernosis_remediation_repairs_total`, `$__rate_interval`)+`) > 0`, "{{operation}} {{outcome}}")},
				{kind: bars, title: "Whether they helped", text: "Helped: the problem was gone and the node ready in time. Moot: nothing was proven.",
					queries: one(`sum by (operation, result) (`+rise(`kernosis_remediation_verifications_total`, `$__rate_interval`)+`) > 0`, "{{operation}} {{result}}")},
				{kind: lines, title: "Budgets in use", text: "Nodes under repair or out of service, and how many may be.", queries: []query{
					{`max by (policy) (kernosis_remediation_budget_used)`, "{{policy}}"},
					{`max by (policy) (kernosis_remediation_budget_limit)`, "{{policy}}: limit"},
				}},
				{kind: rowsOf, w: 8, title: "Decisions so far", text: "Since the controller that leads was started.",
					queries: one(`sum by (policy, verb, reason) (kernosis_remediation_decisions_total)`, ""),
					names:   map[string]string{"policy": "Policy", "verb": "Decision", "reason": "Reason"}, value: "Decisions"},
				{kind: rowsOf, w: 8, title: "Repairs so far", text: "Since the controller that leads was started.",
					queries: one(`sum by (operation, outcome) (kernosis_remediation_repairs_total)`, ""),
					names:   map[string]string{"operation": "Operation", "outcome": "Outcome"}, value: "Repairs"},
			}},
		},
	}
}
