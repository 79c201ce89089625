{{/* The labels of an object. The argument is a dict with the root context and the component. */}}
{{- define "harebell.labels" -}}
{{ include "harebell.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{- define "harebell.selector" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "harebell.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "harebell.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "harebell.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* The components: name -> module, key of the URLs, values and pool. */}}
{{- define "harebell.components" -}}
{{- $all := dict }}
{{- $_ := set $all "intake" (dict "module" "intake" "key" "intake" "values" .Values.intake) }}
{{- $_ := set $all "ticker" (dict "module" "ticker" "key" "ticker" "values" .Values.ticker) }}
{{- $_ := set $all "dispatcher" (dict "module" "dispatcher" "key" "dispatcher" "values" .Values.dispatcher) }}
{{- $_ := set $all "dlq-inspector" (dict "module" "dlq_inspector" "key" "dlq-inspector" "values" .Values.dlqInspector) }}
{{- range $pool, $values := .Values.executors }}
{{- $_ := set $all (printf "executor-%s" $pool) (dict "module" "executor" "key" "executor" "values" $values "pool" $pool) }}
{{- end }}
{{- $all | toYaml }}
{{- end }}

{{/* The autoscaling of one pool, as YAML. The values of an older chart lack some of its fields. */}}
{{- define "harebell.autoscaling" -}}
{{- $given := .autoscaling | default dict }}
{{- $all := dict "enabled" false "prometheusAddress" "" "minReplicas" 1 "maxReplicas" 10 }}
{{- $_ := set $all "runsPerExecutor" 1000 }}
{{- $_ := set $all "plannedWithin" "1m" }}
{{- $_ := set $all "readsLedger" true }}
{{- /* The function merge would replace 0 and false, which count as empty. */}}
{{- range $name, $value := $given }}
{{- $_ := set $all $name $value }}
{{- end }}
{{- $all | toYaml }}
{{- end }}

{{/* A text that is not empty if KEDA reads the ledger for at least one pool. */}}
{{- define "harebell.readsLedger" -}}
{{- range $pool, $values := .Values.executors }}
{{- $autoscaling := include "harebell.autoscaling" $values | fromYaml }}
{{- if and $autoscaling.enabled $autoscaling.readsLedger }}{{ $pool }} {{ end }}
{{- end }}
{{- end }}
