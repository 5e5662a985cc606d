{{/*
Names are the same in each installation: there is one Kernosis a cluster, as a node's
programs, conditions and Lease have one owner. Only the namespace is the release's.
*/}}

{{/*
Labels of everything. Takes a dict of root and component and, for some objects, labels of their
own, which come before commonLabels.
*/}}
{{- define "kernosis.labels" -}}
{{ include "kernosis.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | trunc 63 | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
{{- with mergeOverwrite (dict) (.root.Values.commonLabels | default dict) (.labels | default dict) }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/*
Labels and annotations of an object's metadata. Takes what kernosis.labels takes and, for some
objects, annotations of their own, which come before commonAnnotations.
*/}}
{{- define "kernosis.meta" -}}
labels:
  {{- include "kernosis.labels" . | nindent 2 }}
{{- with mergeOverwrite (dict) (.root.Values.commonAnnotations | default dict) (.annotations | default dict) }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Binds a ValidatingAdmissionPolicy. Takes what kernosis.meta takes, and policy, its name. */}}
{{- define "kernosis.binding" -}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ .policy }}
  {{- include "kernosis.meta" . | nindent 2 }}
spec:
  policyName: {{ .policy }}
  validationActions: [Deny]
{{- end }}

{{/* Labels that select pods: they never change, and have nothing of commonLabels. */}}
{{- define "kernosis.selector" -}}
app.kubernetes.io/name: kernosis
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "kernosis.image" -}}
{{- $registry := (.Values.global | default dict).imageRegistry | default .Values.image.registry | trimSuffix "/" -}}
{{- with .Values.image -}}
{{ with $registry }}{{ . }}/{{ end }}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{ with .digest }}@{{ . }}{{ end }}
{{- end }}
{{- end }}

{{/* The service account of a component: agent or controller. Takes a dict of root and component. */}}
{{- define "kernosis.serviceAccountName" -}}
{{- dig "serviceAccount" "name" "" (index .root.Values .component) | default (printf "kernosis-%s" .component) }}
{{- end }}

{{/* The name by which the API server calls that account. */}}
{{- define "kernosis.username" -}}
system:serviceaccount:{{ .root.Release.Namespace }}:{{ include "kernosis.serviceAccountName" . }}
{{- end }}

{{/* whole or parts: how much of the host's file system the agent has below /host. */}}
{{- define "kernosis.hostRoot" -}}
{{- .Values.agent.hostRoot | default (ternary "parts" "whole" (eq .Values.agent.profile "hardened")) }}
{{- end }}

{{/* Credentials for the image: those of imagePullSecrets, and of global.imagePullSecrets as names or objects. */}}
{{- define "kernosis.pull" -}}
{{- $secrets := list }}
{{- range concat ((.Values.global | default dict).imagePullSecrets | default list) (.Values.imagePullSecrets | default list) }}
{{- $secrets = append $secrets (kindIs "string" . | ternary (dict "name" .) .) }}
{{- end }}
{{- with $secrets | uniq }}
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
  # The certificates are self-signed.
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

{{/* Objects of a file, with commonLabels and commonAnnotations. Takes a dict of root and text. */}}
{{- define "kernosis.withCommon" -}}
{{- range $i, $text := splitList "\n---\n" .text }}
{{- $object := fromYaml $text }}
{{- range $field, $common := dict "labels" $.root.Values.commonLabels "annotations" $.root.Values.commonAnnotations }}
{{- with mergeOverwrite (dict) ($common | default dict) (get $object.metadata $field | default dict) }}
{{- $_ := set $object.metadata $field . }}
{{- end }}
{{- end }}
{{- if $i }}
---
{{ end }}
{{- toYaml $object }}
{{- end }}
{{- end }}

{{/* Scrape settings of a monitor's endpoint. Takes a value of monitoring: podMonitor or serviceMonitor. */}}
{{- define "kernosis.scrapeOptions" -}}
# Keep the labels namespace, pod and container of the probed containers.
honorLabels: true
relabelings:
- {sourceLabels: [__meta_kubernetes_pod_node_name], targetLabel: node}
{{- with .relabelings }}
{{ toYaml . }}
{{- end }}
{{- with .metricRelabelings }}
metricRelabelings:
{{- toYaml . | nindent 0 }}
{{- end }}
{{- with .interval }}
interval: {{ . }}
{{- end }}
{{- with .scrapeTimeout }}
scrapeTimeout: {{ . }}
{{- end }}
{{- end }}
