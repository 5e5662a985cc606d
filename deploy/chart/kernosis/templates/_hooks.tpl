{{/*
A Job of a hook, with a ServiceAccount and rights of its own that are there as long as it
runs. Takes a dict of root, name, hook, args, seconds, and the rules of a ClusterRole and,
where there are any, of a Role.
*/}}
{{- define "kernosis.hook" -}}
{{- $rights := include "kernosis.meta" (dict "root" .root "component" .name "annotations" (include "kernosis.hookAnnotations" (dict "hook" .hook "weight" "-5") | fromYaml)) }}
{{- $name := printf "kernosis-%s" .name }}
{{- $pod := .root.Values.hooks | default dict }}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ $name }}
  namespace: {{ .root.Release.Namespace }}
  {{- $rights | nindent 2 }}
automountServiceAccountToken: false
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ $name }}
  {{- $rights | nindent 2 }}
rules:
{{ .clusterRules }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ $name }}
  {{- $rights | nindent 2 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {{ $name }}}
subjects:
- {kind: ServiceAccount, name: {{ $name }}, namespace: {{ .root.Release.Namespace }}}
{{- with .rules }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ $name }}
  namespace: {{ $.root.Release.Namespace }}
  {{- $rights | nindent 2 }}
rules:
{{ . }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ $name }}
  namespace: {{ $.root.Release.Namespace }}
  {{- $rights | nindent 2 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: {{ $name }}}
subjects:
- {kind: ServiceAccount, name: {{ $name }}, namespace: {{ $.root.Release.Namespace }}}
{{- end }}
---
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ $name }}
  namespace: {{ .root.Release.Namespace }}
  {{- include "kernosis.meta" (dict "root" .root "component" .name "annotations" (include "kernosis.hookAnnotations" (dict "hook" .hook "weight" "0") | fromYaml)) | nindent 2 }}
spec:
  backoffLimit: 2
  activeDeadlineSeconds: {{ .seconds }}
  template:
    metadata:
      labels: {{- include "kernosis.labels" (dict "root" .root "component" .name "labels" $pod.podLabels) | nindent 8 }}
      {{- with $pod.podAnnotations }}
      annotations: {{- toYaml . | nindent 8 }}
      {{- end }}
    spec:
      serviceAccountName: {{ $name }}
      automountServiceAccountToken: true
      {{- include "kernosis.pull" .root | nindent 6 }}
      restartPolicy: Never
      enableServiceLinks: false
      {{- with $pod.priorityClassName }}
      priorityClassName: {{ . }}
      {{- end }}
      {{- with $pod.nodeSelector }}
      nodeSelector: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $pod.tolerations }}
      tolerations: {{- toYaml . | nindent 6 }}
      {{- end }}
      {{- with $pod.affinity }}
      affinity: {{- toYaml . | nindent 8 }}
      {{- end }}
      securityContext: {{- include "kernosis.restrictedPod" . | nindent 8 }}
      containers:
      - name: {{ .name }}
        image: {{ include "kernosis.image" .root }}
        imagePullPolicy: {{ .root.Values.image.pullPolicy }}
        args: {{- toYaml .args | nindent 8 }}
        env:
        - name: POD_NAMESPACE
          valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
        {{- with $pod.extraEnv }}{{ toYaml . | nindent 8 }}{{ end }}
        {{- with $pod.resources }}
        resources: {{- toYaml . | nindent 10 }}
        {{- end }}
        securityContext: {{- include "kernosis.restricted" . | nindent 10 }}
{{- end }}

{{- define "kernosis.hookAnnotations" -}}
helm.sh/hook: {{ .hook }}
helm.sh/hook-weight: {{ .weight | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}

{{/* The definitions of kernosis.io, by their names. */}}
{{- define "kernosis.kinds" -}}
{{- $names := list -}}
{{- range tuple "diagnoses" "operations" "operationsets" "remediationpolicies" "triggers" -}}
{{- $names = append $names (printf "%s.kernosis.io" .) -}}
{{- end -}}
{{- toJson $names -}}
{{- end }}
