{{- define "escrowmq.name" -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "escrowmq.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "escrowmq.labels" -}}
{{ include "escrowmq.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{/* Whether the brokers are a group that fails over; name servers have pods of their own then. */}}
{{- define "escrowmq.isGroup" -}}
{{- if gt (int .Values.group.replicas) 1 }}yes{{ end -}}
{{- end -}}

{{- define "escrowmq.nameserverSelector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}-nameserver
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "escrowmq.nameservers" -}}
{{- $name := printf "%s-nameserver" (include "escrowmq.name" .) -}}
{{- $found := list -}}
{{- range until (int .Values.group.nameservers) -}}
{{- $found = append $found (printf "%s-%d.%s.%s.svc:9876" $name . $name $.Release.Namespace) -}}
{{- end -}}
{{- join ";" $found -}}
{{- end -}}

{{- define "escrowmq.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "escrowmq.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* The authority of a group; empty without one. */}}
{{- define "escrowmq.authority" -}}
{{- if include "escrowmq.isGroup" . }}{{ .Values.group.authority }}{{ end -}}
{{- end -}}
