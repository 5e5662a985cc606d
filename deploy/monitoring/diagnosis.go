package monitoring

// diagnosis returns the dashboard of Diagnoses and repairs.
func diagnosis() *board {
	b := &board{
		uid: uidDiagnosis, title: "Kernosis / Diagnosis and remediation", description: "Diagnoses and their results, and repairs that were made or held back.",
		alerts: `alertname=~"Kernosis(Diagnos|Trigger|Alert|Certificate|Repair|Budget).*"`,
	}
	b.rows = []row{
		{"Now", append(diagnosisStats(),
			graph{kind: bars, title: "Completed Diagnoses", text: "Completed Diagnoses, by phase.", none: "No Diagnosis in this range.",
				queries: one(`sum by (phase) (increase(kernosis_diagnoses_ended_total[$__rate_interval])) > 0`, "{{phase}}")},
			graph{kind: bars, title: "Repair decisions", text: "Changed decisions on repairs: run, dry run, wait or withhold, with the reason.", none: "No repair was due in this range.",
				queries: one(`sum by (verb, reason) (`+rise(`kernosis_remediation_decisions_total`, `$__rate_interval`)+`) > 0`, "{{verb}} {{reason}}")},
			graph{kind: words, title: "Next step", text: "List Diagnoses with their verdicts, and explain a node with the repairs that are held back:\n\n```\nkubectl get diagnoses -A\nkubectl kernosis why node NODE\n```\n\n" +
				"[Diagnoses](" + Docs + "diagnose.md), [repairs](" + Docs + "remediation.md)"},
			b.alertTable(24),
		)},
		{"Diagnoses", diagnosisRuns()},
		{"Triggers of the controller", diagnosisTriggers()},
		{"Repairs", diagnosisRepairs()},
	}
	return b
}

func diagnosisStats() []graph {
	return []graph{
		{kind: stat, title: "Running", text: "Diagnoses with a running operation.", none: "No agent is scraped.", queries: one(`sum(kernosis_diagnoses_running)`, "running")},
		{kind: stat, title: "Waiting", text: "Diagnoses that wait for others, the API server or a decision.", none: "No agent is scraped.", queries: one(`sum(kernosis_diagnoses_waiting)`, "waiting"), warn: 10},
		{kind: stat, title: "Not written", text: "Completed Diagnoses that are not yet written to the API server.", none: "No agent is scraped.", page: "runbooks/KernosisDiagnosesUnreported",
			queries: one(`sum(kernosis_diagnoses_unreported)`, "not written"), warn: 1},
		{kind: stat, title: "Success ratio", text: "Share of completed Diagnoses in the selected range that found a cause.", none: "No Diagnosis", unit: "percentunit", warn: 0.5, badBelow: true, page: "runbooks/KernosisDiagnosesFailing",
			queries: one(`sum(increase(kernosis_diagnoses_ended_total{phase="Succeeded"}[$__range])) / sum(increase(kernosis_diagnoses_ended_total[$__range]))`, "succeeded")},
		{kind: stat, title: "Nodes under repair", text: "Nodes that use a budget because of a repair.", none: "0", queries: one(`sum(max by (cluster, policy) (kernosis_remediation_slots))`, "nodes"), warn: 1},
		{kind: stat, title: "Ignored Triggers", text: "Triggers that agents or the controller ignore because they contain an error.", none: "No controller is scraped.", page: "runbooks/KernosisTriggersLeftOut",
			queries: one(`max(kernosis_triggers_refused) + sum(max by (cluster, reason) (kernosis_triggers_left_out))`, "triggers"), warn: 1},
	}
}

func diagnosisRuns() []graph {
	return []graph{
		{kind: lines, title: "Duration", text: "Time from the report of the problem to the end of its Diagnosis.", none: "No Diagnosis in this range.", unit: "s",
			queries: []query{
				{`histogram_quantile(0.5, sum by (le) (rate(kernosis_diagnosis_latency_seconds_bucket[$__rate_interval])))`, "p50"},
				{`histogram_quantile(0.95, sum by (le) (rate(kernosis_diagnosis_latency_seconds_bucket[$__rate_interval])))`, "p95"},
			}},
		{kind: heat, title: "Distribution of durations", text: "Durations of all Diagnoses.", none: "No Diagnosis in this range.", unit: "s",
			queries: one(`sum by (le) (increase(kernosis_diagnosis_latency_seconds_bucket[$__rate_interval]))`, "")},
		{kind: lines, title: "Diagnoses in the cluster", text: "Existing Diagnosis objects, by phase.", none: "No controller is scraped.", stack: true, queries: one(`max by (cluster, phase) (kernosis_controller_diagnoses)`, "{{phase}} {{cluster}}")},
		{kind: bars, title: "Requested by Triggers on nodes", text: "Diagnoses that Triggers of agents requested, by Trigger.", none: "None in this range.",
			queries: one(`sum by (trigger) (increase(kernosis_trigger_diagnoses_total{outcome=""}[$__rate_interval]))`, "{{trigger}}")},
		{kind: bars, title: "Accepted, created, dropped", text: "Diagnoses that agents accepted from the API server, created themselves, or dropped.", page: "runbooks/KernosisDiagnosesDropped",
			queries: []query{
				{`sum(increase(kernosis_diagnoses_taken_total[$__rate_interval]))`, "accepted"},
				{`sum(increase(kernosis_diagnoses_made_total[$__rate_interval]))`, "created"},
				{`sum by (reason) (` + rise(`kernosis_diagnoses_dropped_total`, `$__rate_interval`) + `) or vector(0)`, "dropped {{reason}}"},
			}},
		{kind: bars, title: "Withheld", text: "Diagnoses that the cooldown or rate limit of a Trigger prevented.", none: "None in this range.",
			queries: one(`sum by (trigger, reason) (`+rise(`kernosis_trigger_withheld_total`, `$__rate_interval`)+`) > 0`, "{{trigger}} {{reason}}")},
		{kind: lines, title: "Status writes", text: "Writes of Diagnosis status, by outcome.", unit: "reqps",
			queries: one(`sum by (outcome) (rate(kernosis_diagnosis_writes_total[$__rate_interval]))`, "{{outcome}}")},
		{kind: bars, title: "Deleted", text: "Diagnoses that the controller deleted, by reason.", none: "None in this range.",
			queries: one(`sum by (reason) (increase(kernosis_controller_diagnoses_deleted_total[$__rate_interval]))`, "{{reason}}")},
	}
}

func diagnosisTriggers() []graph {
	return []graph{
		{kind: bars, title: "Requested Diagnoses", text: "Diagnoses that Triggers on alerts, Events and schedules requested, by outcome.", none: "None in this range.", page: "runbooks/KernosisTriggerDiagnosesNotMade",
			queries: one(`sum by (trigger, outcome) (`+rise(`kernosis_trigger_diagnoses_total{outcome!=""}`, `$__rate_interval`)+`) > 0`, "{{trigger}} {{outcome}}")},
		{kind: lines, title: "Queue", text: "Diagnoses that wait to be created; at most 1024.", none: "No controller is scraped.", queries: one(`max(kernosis_trigger_queue_length)`, "queue"), warn: 512, crit: 1024},
		{kind: lines, title: "Active Triggers", text: "Active Triggers of the controller, by source.", none: "No controller is scraped.", queries: one(`max by (cluster, source) (kernosis_triggers)`, "{{source}} {{cluster}}")},
		{kind: lines, title: "Alert requests", text: "Requests from alert senders, by response code.", none: "No request in this range.", unit: "reqps",
			queries: one(`sum by (code) (rate(kernosis_alert_requests_total[$__rate_interval]))`, "{{code}}")},
		{kind: bars, title: "Received alerts", text: "Alerts that the controller accepted and ignored.", none: "None in this range.",
			queries: []query{
				{`sum(increase(kernosis_alerts_received_total[$__rate_interval]))`, "accepted"},
				{`sum by (reason) (increase(kernosis_alerts_refused_total[$__rate_interval]))`, "ignored: {{reason}}"},
			}},
		{kind: lines, title: "Certificate lifetime", text: "Time until the certificate of the alert receiver expires.", none: "The alert receiver is off.", unit: "s", warn: 604800, badBelow: true, page: "runbooks/KernosisCertificateExpires",
			queries: one(`min(kernosis_alert_certificate_expiry_timestamp_seconds) - time()`, "left")},
	}
}

func diagnosisRepairs() []graph {
	return []graph{
		{kind: bars, title: "Repairs", text: "Completed repairs, by operation and outcome.", none: "No repair in this range.", page: "runbooks/KernosisRepairFailed",
			queries: one(`sum by (operation, outcome) (`+rise(`kernosis_remediation_repairs_total`, `$__rate_interval`)+`) > 0`, "{{operation}} {{outcome}}")},
		{kind: bars, title: "Verified repairs", text: "Helped: the problem was gone and the node ready in time. Moot: the problem or the node had disappeared, so the result proves nothing.", none: "No repair was verified in this range.", page: "runbooks/KernosisRepairDidNotHelp",
			queries: one(`sum by (operation, result) (`+rise(`kernosis_remediation_verifications_total`, `$__rate_interval`)+`) > 0`, "{{operation}} {{result}}")},
		{kind: lines, title: "Budgets", text: "Nodes under repair or out of service, and the number that each policy allows.", none: "No RemediationPolicy.", page: "runbooks/KernosisBudgetExhausted", queries: []query{
			{`max by (cluster, policy) (kernosis_remediation_budget_used)`, "{{policy}} {{cluster}}"},
			{`max by (cluster, policy) (kernosis_remediation_budget_limit)`, "{{policy}} {{cluster}} limit"},
		}},
		{kind: rowsOf, title: "Decisions so far", text: "Decisions since the leading controller started.", none: "No repair was due.",
			queries: one(`sum by (cluster, policy, verb, reason) (kernosis_remediation_decisions_total)`, ""),
			names:   map[string]string{"cluster": "Cluster", "policy": "Policy", "verb": "Decision", "reason": "Reason"}, value: "Decisions"},
		{kind: rowsOf, title: "Repairs so far", text: "Completed repairs since the leading controller started.", none: "No repair.",
			queries: one(`sum by (cluster, operation, outcome) (kernosis_remediation_repairs_total)`, ""),
			names:   map[string]string{"cluster": "Cluster", "operation": "Operation", "outcome": "Outcome"}, value: "Repairs"},
	}
}
