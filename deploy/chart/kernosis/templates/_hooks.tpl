{{/*
A Job of a hook, with a ServiceAccount and rights of its own that are there as long as it
runs. Takes a dict of root, name, hook, args, seconds, and the rules of a ClusterRole and,
where there are any, of a Role.
*/}}
{{- define "kernosis.hook" -}}
{{- $labels := include "kernosis.labels" (dict "root" .root "component" .name) }}
{{- $rights := include "kernosis.hookAnnotations" (dict "hook" .hook "weight" "-5") }}
{{- $name := printf "kernosis-%s" .name }}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ $name }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- $labels | nindent 4 }}
  annotations: {{- $rights | nindent 4 }}
automountServiceAccountToken: false
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ $name }}
  labels: {{- $labels | nindent 4 }}
  annotations: {{- $rights | nindent 4 }}
rules:
{{ .clusterRules }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ $name }}
  labels: {{- $labels | nindent 4 }}
  annotations: {{- $rights | nindent 4 }}
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
  labels: {{- $labels | nindent 4 }}
  annotations: {{- $rights | nindent 4 }}
rules:
{{ . }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ $name }}
  namespace: {{ $.root.Release.Namespace }}
  labels: {{- $labels | nindent 4 }}
  annotations: {{- $rights | nindent 4 }}
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
  labels: {{- $labels | nindent 4 }}
  annotations: {{- include "kernosis.hookAnnotations" (dict "hook" .hook "weight" "0") | nindent 4 }}
spec:
  backoffLimit: 2
  activeDeadlineSeconds: {{ .seconds }}
  template:
    metadata:
      labels: {{- $labels | nindent 8 }}
    spec:
      serviceAccountName: {{ $name }}
      automountServiceAccountToken: true
      {{- include "kernosis.pull" .root | nindent 6 }}
      restartPolicy: Never
      enableServiceLinks: false
      nodeSelector: {kubernetes.io/os: linux}
      # Also on a node that is cordoned or tainted: there may be no other.
      tolerations:
      - operator: Exists
      securityContext: {{- include "kernosis.restrictedPod" . | nindent 8 }}
      containers:
      - name: {{ .name }}
        image: {{ include "kernosis.image" .root }}
        imagePullPolicy: {{ .root.Values.image.pullPolicy }}
        args: {{- toYaml .args | nindent 8 }}
        env:
        - name: POD_NAMESPACE
          valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
        resources:
          requests: {cpu: 10m, memory: 64Mi}
          limits: {memory: 256Mi}
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
