{{/* A file of alerts, with the addresses and the namespace of this release. Takes a dict of root and file. */}}
{{- define "kernosis.alertFile" -}}
{{- $m := .root.Values.monitoring.rules }}
{{- $text := .root.Files.Get .file }}
{{- if not $text }}{{ fail (printf "monitoring.rules: the chart has no %s" .file) }}{{ end }}
{{- $text = $text | replace "https://github.com/kernosis/kernosis/blob/main/docs/" (printf "%s/" (trimSuffix "/" $m.runbookBaseURL)) }}
{{- $text = $text | replace "https://grafana.invalid/" (printf "%s/" (trimSuffix "/" ($m.dashboardBaseURL | default ""))) }}
{{- include "kernosis.commands" (dict "root" .root "text" $text) }}
{{- end }}

{{/* A text with its commands for the namespace of this release. Takes a dict of root and text. */}}
{{- define "kernosis.commands" -}}
{{- $namespace := .root.Release.Namespace }}
{{- $text := .text | replace "kubectl -n kernosis " (printf "kubectl -n %s " $namespace) }}
{{- if ne $namespace "kernosis" }}
{{- $text = regexReplaceAll "kubectl kernosis why (node|pod) " $text (printf "kubectl kernosis why ${1} --agent-namespace %s " $namespace) }}
{{- end }}
{{- $text }}
{{- end }}

{{/*
Alerts of the rules in the values, as "kernosis rules alerts --rules-dir" makes them, in a list.
What a shipped rule reports has an alert already. Takes the root.
*/}}
{{- define "kernosis.ownAlerts" -}}
{{- $base := trimSuffix "/" .Values.monitoring.rules.runbookBaseURL }}
{{- $t := include "kernosis.alertFile" (dict "root" . "file" "files/own-alerts.yaml") | fromYaml }}
{{- $severities := list "critical" "warning" "info" }}
{{- $rank := dict "critical" 3 "warning" 2 "info" 1 "" 0 }}
{{- /* The severities of shipped alerts, by condition and reason. */}}
{{- $given := dict }}{{ $shipped := dict }}{{ $anyReason := list }}
{{- range $t.shipped }}
{{- $key := printf "%s/%s" (.condition | default "") .reason }}
{{- if gt (get $rank .severity) (get $rank (get $given $key)) }}{{ $_ := set $given $key .severity }}{{ end }}
{{- if .condition }}
{{- $_ := set $shipped .condition (append (get $shipped .condition | default list) .reason) }}
{{- if has "check" .events }}{{ $anyReason = append $anyReason .condition }}{{ end }}
{{- end }}
{{- end }}
{{- $rules := list }}
{{- range $file, $text := .Values.rules }}
{{- $parsed := fromYaml $text }}
{{- with $parsed.Error }}{{ fail (printf "rules.%s: %s" $file .) }}{{ end }}
{{- range $parsed.rules }}
{{- $r := merge (deepCopy .) (get $t.shipped (.extends | default "") | default dict) }}
{{- $_ := set $r "key" (printf "%s/%s" ($r.condition | default "") ($r.reason | default "")) }}
{{- $_ := set $r "all" (append (keys ($r.severityWhen | default dict)) ($r.severity | default "warning")) }}
{{- range $severities }}{{ if has . $r.all }}{{ $_ := set $r "least" . }}{{ end }}{{ end }}
{{- if $r.reason }}{{ $rules = append $rules $r }}{{ end }}
{{- end }}
{{- end }}
{{- $docs := dict }}{{ $checked := dict }}{{ $byRule := dict }}
{{- range $rules }}
{{- if has "check" (.events | default list) }}
{{- /* What a problem daemon gives for a reason stands in place of the rule's: no shipped alert has it. */}}
{{- $_ := set $checked .key true }}{{ $_ := unset $given .key }}{{ $_ := set $byRule .key true }}
{{- end }}
{{- if .severityWhen }}{{ $_ := set $byRule .key true }}{{ end }}
{{- if and .condition .doc (not (hasKey $docs .condition)) }}{{ $_ := set $docs .condition .doc }}{{ end }}
{{- end }}
{{- /* What alerts are about, by condition or reason and by severity. */}}
{{- $conditions := dict }}{{ $problems := dict }}{{ $taken := dict }}
{{- range $severity := $severities }}
{{- range $rules }}
{{- $counted := and (not .condition) (hasKey $byRule .key) }}
{{- $plain := and (eq .least $severity) (not (hasKey $given .key)) (not (hasKey $taken .key)) (not (has (.condition | default "") $anyReason)) }}
{{- if $counted | ternary (and (has $severity .all) (gt (get $rank $severity) (get $rank (get $given .key)))) $plain }}
{{- $_ := set $taken .key $severity }}
{{- $by := empty .condition | ternary $problems $conditions }}
{{- include "kernosis.alertAbout" (dict "by" $by "name" (.condition | default .reason) "severity" $severity "list" ($counted | ternary "rules" "reasons") "rule" .) }}
{{- end }}
{{- end }}
{{- end }}
{{- range $severity := $severities }}
{{- range $rules }}
{{- if and .condition (has $severity .all) (gt (get $rank $severity) (get $rank (get $given .key | default (get $taken .key) | default .least))) }}
{{- include "kernosis.alertAbout" (dict "by" $conditions "name" .condition "severity" $severity "list" "rules" "rule" .) }}
{{- end }}
{{- end }}
{{- end }}
{{- $alerts := list }}
{{- range $condition, $of := $conditions }}
{{- range $severity, $own := $of }}
{{- $a := get $t.condition $severity | toJson | replace "__CONDITION__" $condition | fromJson }}
{{- $parts := list }}
{{- if $own.reasons }}
{{- $matcher := printf ", reason=~%q" (join "|" (sortAlpha $own.reasons)) }}
{{- $others := get $shipped $condition | default list }}
{{- range without $severities $severity }}{{ $others = concat $others (get (get $of . | default dict) "reasons" | default list | sortAlpha) }}{{ end }}
{{- range $own.reasons }}
{{- if hasKey $checked (printf "%s/%s" $condition .) }}{{ $matcher = empty $others | ternary "" (printf ", reason!~%q" (join "|" $others)) }}{{ end }}
{{- end }}
{{- $parts = append $parts (replace ", reason=~\"__REASON__\"" $matcher $a.expr) }}
{{- end }}
{{- with $own.rules }}
{{- $parts = append $parts (get $t.ofRules $severity | replace "__CONDITION__" $condition | replace "__RULES__" (join "|" (sortAlpha .))) }}
{{- end }}
{{- $_ := set $a "expr" (join "\nor\n" $parts) }}
{{- include "kernosis.setRunbook" (dict "alert" $a "doc" ($own.doc | default (get $docs $condition)) "base" $base) }}
{{- $alerts = append $alerts $a }}
{{- end }}
{{- end }}
{{- range $reason, $of := $problems }}
{{- range $severity, $own := $of }}
{{- $a := get (empty $own.rules | ternary $t.problem $t.byRule) $severity | toJson | replace "__REASON__" $reason | replace "__RULES__" (join "|" (sortAlpha $own.rules)) | fromJson }}
{{- range $alerts }}
{{- if and (eq .alert $reason) (eq .labels.severity $severity) }}{{ $_ := set $a "alert" (printf "%sRepeated" $reason) }}{{ end }}
{{- end }}
{{- include "kernosis.setRunbook" (dict "alert" $a "doc" $own.doc "base" $base) }}
{{- $alerts = append $alerts $a }}
{{- end }}
{{- end }}
{{- toYaml $alerts }}
{{- end }}

{{/*
Adds a rule to what the alerts of a name are about: its reason, or its name. Takes a dict of by, name,
severity, list (reasons or rules) and rule.
*/}}
{{- define "kernosis.alertAbout" -}}
{{- $of := get .by .name | default dict }}
{{- $own := get $of .severity | default (dict "reasons" list "rules" list) }}
{{- $_ := set $own .list (append (get $own .list) (eq .list "rules" | ternary .rule.name .rule.reason)) }}
{{- $_ := set $own "doc" ($own.doc | default .rule.doc) }}
{{- $_ := set .by .name (set $of .severity $own) }}
{{- end }}

{{/* Sets the page of a rule's doc, which may be a URL or missing. Takes a dict of alert, doc and base. */}}
{{- define "kernosis.setRunbook" -}}
{{- if not .doc }}{{ $_ := unset .alert.annotations "runbook_url" }}
{{- else if contains "://" .doc }}{{ $_ := set .alert.annotations "runbook_url" .doc }}
{{- else }}{{ $_ := set .alert.annotations "runbook_url" (printf "%s/%s.md" .base .doc) }}
{{- end }}
{{- end }}

{{/*
All groups of alerts, changed as monitoring.rules.alerts has it. Takes the root.
*/}}
{{- define "kernosis.alertGroups" -}}
{{- $m := .Values.monitoring.rules }}
{{- $changes := $m.alerts | default dict }}
{{- $groups := (include "kernosis.alertFile" (dict "root" . "file" "files/alerts.yaml") | fromYaml).groups }}
{{- $own := include "kernosis.ownAlerts" . | fromYamlArray }}
{{- $types := list }}
{{- range $own }}
{{- range regexFindAll "type=\"[A-Za-z0-9]+\"" .expr 1 }}{{ $types = append $types (. | trimPrefix "type=\"" | trimSuffix "\"") }}{{ end }}
{{- end }}
{{- with $own }}{{ $groups = append $groups (dict "name" "kernosis-own-rules" "rules" .) }}{{ end }}
{{- $names := dict }}{{ $out := list }}
{{- range $g := $groups }}
{{- $deployed := or $.Values.controller.enabled (ne $g.name "kernosis-controller") }}
{{- $alerts := list }}
{{- range $a := $g.rules }}
{{- $_ := set $names $a.alert true }}
{{- $change := get $changes $a.alert | default dict }}
{{- if and (eq $a.alert "KernosisOtherCondition") $types }}
{{- $_ := set $a "expr" (replace "type!~\"" (printf "type!~\"%s|" (join "|" (uniq $types))) $a.expr) }}
{{- end }}
{{- if not $m.dashboardBaseURL }}{{ $_ := unset $a.annotations "dashboard_url" }}{{ end }}
{{- range $name, $value := $change.labels }}{{ $_ := set $a.labels $name $value }}{{ end }}
{{- with $change.severity }}{{ $_ := set $a.labels "severity" . }}{{ end }}
{{- with get $change "for" }}{{ $_ := set $a "for" . }}{{ end }}
{{- if and $deployed (dig "enabled" true $change) }}{{ $alerts = append $alerts $a }}{{ end }}
{{- end }}
{{- with $alerts }}{{ $out = append $out (dict "name" $g.name "rules" .) }}{{ end }}
{{- end }}
{{- range $name, $_ := $changes }}
{{- if not (hasKey $names $name) }}{{ fail (printf "monitoring.rules.alerts: there is no alert %q: docs/monitoring.md lists those of the shipped rules, and \"kernosis rules alerts\" prints them" $name) }}{{ end }}
{{- end }}
{{- toYaml $out }}
{{- end }}
