{{- define "replaywatch.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "replaywatch.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains (include "replaywatch.name" .) .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "replaywatch.name" .) | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Labels that select a part's pods; call with (dict "root" $ "part" "agent"). They never change between versions. */}}
{{- define "replaywatch.selector" -}}
app.kubernetes.io/name: {{ include "replaywatch.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end -}}

{{- define "replaywatch.labels" -}}
{{ include "replaywatch.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The image of a part; call with (dict "root" $ "name" "agent"). */}}
{{- define "replaywatch.image" -}}
{{- printf "%s/%s:%s" (trimSuffix "/" .root.Values.imageRegistry) .name (default .root.Chart.AppVersion .root.Values.imageTag) -}}
{{- end -}}

{{- define "replaywatch.serviceAccount" -}}
{{- $account := (index .root.Values .part).serviceAccount -}}
{{- if $account.create -}}
{{- default (printf "%s-%s" (include "replaywatch.fullname" .root) .part) $account.name -}}
{{- else -}}
{{- default "default" $account.name -}}
{{- end -}}
{{- end -}}

{{- define "replaywatch.tokenSecret" -}}
{{- default (printf "%s-token" (include "replaywatch.fullname" .)) .Values.auth.existingSecret -}}
{{- end -}}

{{- define "replaywatch.collectorUrl" -}}
{{- if .Values.agent.collectorUrl -}}
{{- .Values.agent.collectorUrl -}}
{{- else if .Values.collector.enabled -}}
{{- printf "http://%s-collector.%s.svc:%v" (include "replaywatch.fullname" .) .Release.Namespace .Values.collector.service.port -}}
{{- end -}}
{{- end -}}
