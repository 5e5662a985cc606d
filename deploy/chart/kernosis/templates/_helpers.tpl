{{/*
Names are the same in each installation: there is one Kernosis a cluster, as a node's
programs, conditions and Lease have one owner. Only the namespace is the release's.
*/}}

{{/* Labels of everything. Takes a dict of root and component. */}}
{{- define "kernosis.labels" -}}
{{ include "kernosis.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | trunc 63 | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
{{- end }}

{{/* Labels that select pods: they never change. */}}
{{- define "kernosis.selector" -}}
app.kubernetes.io/name: kernosis
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "kernosis.image" -}}
{{- with .Values.image -}}
{{ with .registry }}{{ . }}/{{ end }}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{ with .digest }}@{{ . }}{{ end }}
{{- end }}
{{- end }}

{{/* whole or parts: how much of the host's file system the agent has below /host. */}}
{{- define "kernosis.hostRoot" -}}
{{- .Values.agent.hostRoot | default (ternary "parts" "whole" (eq .Values.agent.profile "hardened")) }}
{{- end }}

{{/* What a pod needs to come from the image. */}}
{{- define "kernosis.pull" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
{{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* A container that is nobody's, as Pod Security's level "restricted" wants it. */}}
{{- define "kernosis.restricted" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "kernosis.restrictedPod" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* How metrics are served at addresses that others reach. */}}
{{- define "kernosis.metricsArgs" -}}
{{- if .Values.metrics.plainHTTP }}
- --metrics-plain-http
{{- else if .Values.metrics.certificateSecret }}
- --metrics-cert-file=/etc/kernosis/metrics/tls.crt
- --metrics-key-file=/etc/kernosis/metrics/tls.key
{{- end }}
{{- end }}

{{/* Whether a certificate is mounted: "true", or nothing. */}}
{{- define "kernosis.metricsCertificate" -}}
{{- if and .Values.metrics.certificateSecret (not .Values.metrics.plainHTTP) }}true{{ end }}
{{- end }}

{{/* How Prometheus reads metrics: by a token that is good for nothing else. */}}
{{- define "kernosis.scrape" -}}
{{- if .Values.metrics.plainHTTP }}
scheme: http
{{- else }}
scheme: https
tlsConfig:
  {{- if .Values.metrics.certificateSecret }}
  serverName: {{ .Values.metrics.serverName }}
  ca: {secret: {name: {{ .Values.metrics.certificateSecret | quote }}, key: ca.crt}}
  {{- else }}
  # The certificates sign themselves.
  insecureSkipVerify: true
  {{- end }}
authorization:
  type: Bearer
  credentials: {name: kernosis-metrics-token, key: token}
{{- end }}
{{- end }}

{{/* A file of node-problem-detector: below npd.mountPath, unless it is a path. */}}
{{- define "kernosis.npdFiles" -}}
{{- $paths := list -}}
{{- range .files -}}
{{- $paths = append $paths (ternary . (printf "%s/%s" (trimSuffix "/" $.mountPath) .) (hasPrefix "/" .)) -}}
{{- end -}}
{{- join "," $paths -}}
{{- end }}
