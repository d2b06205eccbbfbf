{{- define "respread.selector" -}}
app.kubernetes.io/name: respread
app.kubernetes.io/component: operator
{{- end }}

{{- define "respread.labels" -}}
app.kubernetes.io/name: respread
app.kubernetes.io/part-of: respread
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "respread.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "respread.schedulerConfigMap" -}}
{{- with .Values.schedulerConfiguration -}}
{{- if .existingConfigMap -}}{{ .existingConfigMap }}{{- else if .content -}}respread-scheduler{{- end -}}
{{- end -}}
{{- end }}
