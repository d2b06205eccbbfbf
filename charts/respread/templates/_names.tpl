{{- define "respread.name" -}}
{{ .Values.fullnameOverride | default "respread" }}
{{- end }}

{{- define "respread.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (include "respread.name" .) }}
{{- end }}

{{- define "respread.selector" -}}
app.kubernetes.io/name: respread
app.kubernetes.io/component: operator
{{- end }}

{{- /* The labels and annotations of an object: of its kind and the common ones. Takes the root, and the kind's own. */ -}}
{{- define "respread.metadata" -}}
{{- $root := .root }}
{{- $fixed := include "respread.labels" $root | fromYaml -}}
labels:
  {{- mergeOverwrite (dict) $root.Values.commonLabels (.labels | default (dict)) $fixed (.fixed | default (dict)) | toYaml | nindent 2 }}
{{- with mergeOverwrite (dict) $root.Values.commonAnnotations (.annotations | default (dict)) }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "respread.labels" -}}
app.kubernetes.io/name: respread
app.kubernetes.io/part-of: respread
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- /* The name of an image. Takes the root, and the values of the image. */ -}}
{{- define "respread.image" -}}
{{- with .image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.root.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "respread.schedulerConfigMap" -}}
{{- with .Values.schedulerConfiguration -}}
{{- if .existingConfigMap -}}{{ .existingConfigMap }}{{- else if .content -}}{{ include "respread.name" $ }}-scheduler{{- end -}}
{{- end -}}
{{- end }}

{{- /* A policy's spec, as YAML. Fails for one that needs a permission which the chart does not grant. */ -}}
{{- define "respread.policySpec" -}}
{{- $root := .root }}
{{- $spec := deepCopy .spec }}
{{- $where := .where }}
{{- $cost := ($spec.prevention).podDeletionCost }}
{{- if and (eq ($cost | toString) "Enabled") (not $root.Values.prevention.enabled) }}
{{- fail (printf "%s.prevention.podDeletionCost is Enabled, and without prevention.enabled=true Respread may not patch pods. Set prevention.enabled=true: it grants the permission, and sets podDeletionCost in the policy default." $where) }}
{{- end }}
{{- range ($spec.constraints).expectedDomains }}
{{- if and (eq (.provision | toString) "Request") (not $root.Values.room.enabled) }}
{{- fail (printf "%s.constraints.expectedDomains asks for room (provision: Request) in domains of %s, and without room.enabled=true Respread may not create what asks an autoscaler for it. Set room.enabled=true." $where .topologyKey) }}
{{- end }}
{{- end }}
{{- if and .prevents $root.Values.prevention.enabled (not $cost) }}
{{- $spec = mergeOverwrite $spec (dict "prevention" (dict "podDeletionCost" "Enabled")) }}
{{- end }}
{{- toYaml $spec }}
{{- end }}
