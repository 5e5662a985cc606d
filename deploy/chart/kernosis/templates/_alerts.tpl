{{/* A file of alerts, with the addresses and the namespace of this release. Takes a dict of root and file. */}}
{{- define "kernosis.alertFile" -}}
{{- $m := .root.Values.monitoring.rules }}
{{- $text := .root.Files.Get .file }}
{{- if not $text }}{{ fail (printf "monitoring.rules: the chart has no %s" .file) }}{{ end }}
{{- $text = $text | replace "https://github.com/kernosis/kernosis/blob/main/docs/" (printf "%s/" (trimSuffix "/" $m.runbookBaseURL)) }}
{{- $text = $text | replace "https://grafana.invalid/" (printf "%s/" (trimSuffix "/" ($m.dashboardBaseURL | default ""))) }}
{{- $text | replace "kubectl -n kernosis " (printf "kubectl -n %s " .root.Release.Namespace) }}
{{- end }}

{{/*
Alerts of the rules in the values, as "kernosis rules alerts --rules-dir" makes them, in a list.
What a shipped rule reports has an alert already. Takes the root.
*/}}
{{- define "kernosis.ownAlerts" -}}
{{- $base := trimSuffix "/" .Values.monitoring.rules.runbookBaseURL }}
{{- $t := include "kernosis.alertFile" (dict "root" . "file" "files/own-alerts.yaml") | fromYaml }}
{{- $taken := dict }}
{{- range $t.shipped }}{{ $_ := set $taken (printf "%s/%s" (.condition | default "") .reason) true }}{{ end }}
{{- $rules := list }}
{{- range $file, $text := .Values.rules }}
{{- $parsed := fromYaml $text }}
{{- with $parsed.Error }}{{ fail (printf "rules.%s: %s" $file .) }}{{ end }}
{{- range $parsed.rules }}
{{- $rules = append $rules (merge (deepCopy .) (get $t.shipped (.extends | default "") | default dict)) }}
{{- end }}
{{- end }}
{{- $docs := dict }}
{{- range $rules }}
{{- if and .condition .doc (not (hasKey $docs .condition)) }}{{ $_ := set $docs .condition .doc }}{{ end }}
{{- end }}
{{- $conditions := list }}{{ $problems := list }}
{{- range $severity := list "critical" "warning" "info" }}
{{- $reasons := dict }}{{ $own := dict }}
{{- range $rules }}
{{- $key := printf "%s/%s" (.condition | default "") (.reason | default "") }}
{{- if and .reason (eq (.severity | default "warning") $severity) (not (hasKey $taken $key)) (not (has (.condition | default "") $t.anyReason)) }}
{{- $_ := set $taken $key true }}
{{- if .condition }}
{{- $_ := set $reasons .condition (append (get $reasons .condition | default list) .reason) }}
{{- if not (get $own .condition) }}{{ $_ := set $own .condition (.doc | default "") }}{{ end }}
{{- else }}
{{- $problems = append $problems (dict "severity" $severity "reason" .reason "doc" (.doc | default "")) }}
{{- end }}
{{- end }}
{{- end }}
{{- range $condition, $of := $reasons }}
{{- $a := get $t.condition $severity | toJson | replace "__CONDITION__" $condition | replace "__REASON__" (join "|" (sortAlpha $of)) | fromJson }}
{{- include "kernosis.setRunbook" (dict "alert" $a "doc" (get $own $condition | default (get $docs $condition)) "base" $base) }}
{{- $conditions = append $conditions $a }}
{{- end }}
{{- end }}
{{- range $p := $problems }}
{{- $a := get $t.problem $p.severity | toJson | replace "__REASON__" $p.reason | fromJson }}
{{- range $conditions }}
{{- if and (eq .alert $p.reason) (eq .labels.severity $p.severity) }}{{ $_ := set $a "alert" (printf "%sRepeated" $p.reason) }}{{ end }}
{{- end }}
{{- include "kernosis.setRunbook" (dict "alert" $a "doc" $p.doc "base" $base) }}
{{- $conditions = append $conditions $a }}
{{- end }}
{{- toYaml $conditions }}
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
{{- if dig "enabled" true $change }}{{ $alerts = append $alerts $a }}{{ end }}
{{- end }}
{{- with $alerts }}{{ $out = append $out (dict "name" $g.name "rules" .) }}{{ end }}
{{- end }}
{{- range $name, $_ := $changes }}
{{- if not (hasKey $names $name) }}{{ fail (printf "monitoring.rules.alerts: there is no alert %q: docs/monitoring.md lists those of the shipped rules, and \"kernosis rules alerts\" prints them" $name) }}{{ end }}
{{- end }}
{{- toYaml $out }}
{{- end }}
