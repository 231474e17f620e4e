{{/* Names of objects are fixed: the namespace is Heronry's alone, and topologies ask "api" by that name. */}}

{{- define "heronry.project" -}}
{{ .Values.project | default .Release.Namespace }}
{{- end }}

{{- define "heronry.state" -}}
{{- if .Values.state }}{{ .Values.state }}
{{- else if .Values.zookeeper.enabled }}zookeeper+tls://zookeeper:2281/heronry
{{- else }}{{ fail "zookeeper.enabled is false, so say where the state store is: --set state=zookeeper+tls://HOST:2281/heronry" }}
{{- end }}
{{- end }}

{{- define "heronry.tls" -}}
{{- if hasPrefix "zookeeper+tls:" (include "heronry.state" .) }}yes{{ end }}
{{- end }}

{{- define "heronry.labels" -}}
{app.kubernetes.io/name: {{ .name }}, org.heronry.joins: {{ include "heronry.project" .root | quote }}}
{{- end }}

{{/* Of a Pod of the services: which nodes, and how images are fetched. */}}
{{- define "heronry.placing" -}}
{{- with .Values.nodeSelector }}
nodeSelector: {{ toJson . }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{ toJson . }}
{{- end }}
{{- with .Values.images.pullSecret }}
imagePullSecrets: [{name: {{ . | quote }}}]
{{- end }}
{{- end }}

{{/* Of a Pod: one user that is not root. */}}
{{- define "heronry.user" -}}
{runAsNonRoot: true, runAsUser: {{ . }}, runAsGroup: {{ . }}, fsGroup: {{ . }}, seccompProfile: {type: RuntimeDefault}}
{{- end }}

{{- define "heronry.hardened" -}}
{allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
{{- end }}

{{/* Replicas are on different nodes, as far as there are. */}}
{{- define "heronry.spread" -}}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector: {matchLabels: {app.kubernetes.io/name: {{ . }}}}
{{- end }}
