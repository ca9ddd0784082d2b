{{/*
All names are fixed: a cluster has one scheduler `plimsoll`, one CSI driver `plimsoll.dev` and one set of resources, so a
second release is refused by Helm. tests/deploy renders these templates and applies them to a real API server.
*/}}

{{- define "plimsoll.image" -}}
{{- $name := .image.repository -}}
{{- with .image.registry }}{{ $name = printf "%s/%s" . $name }}{{ end -}}
{{- if .image.digest }}{{ $name }}@{{ .image.digest }}{{ else }}{{ $name }}:{{ .image.tag | default .default }}{{ end -}}
{{- end -}}

{{/* The labels of every object. commonLabels and the further `labels` replace none of them. */}}
{{- define "plimsoll.labels" -}}
{{- toYaml (merge (dict
  "app.kubernetes.io/name" "plimsoll"
  "app.kubernetes.io/part-of" "plimsoll"
  "app.kubernetes.io/component" .part
  "app.kubernetes.io/instance" .root.Release.Name
  "app.kubernetes.io/version" .root.Chart.AppVersion) (.labels | default dict) (.root.Values.commonLabels | default dict)) -}}
{{- end -}}

{{/* Selectors cannot change in an upgrade, so they hold only labels that never change. */}}
{{- define "plimsoll.selector" -}}
app: plimsoll-{{ . }}
{{- end -}}

{{/* Further settings of a part as variables. Helm reads whole numbers as floats, and 2.5e+11 is no whole number. */}}
{{- define "plimsoll.settings" -}}
{{- $prefix := .prefix -}}
{{- range $name, $value := .settings }}
- name: {{ $prefix }}{{ upper $name }}
  value: {{ include "plimsoll.number" $value | quote }}
{{- end }}
{{- end -}}

{{- define "plimsoll.number" -}}
{{- if and (kindIs "float64" .) (eq (floor .) .) }}{{ printf "%.0f" . }}{{ else }}{{ . }}{{ end -}}
{{- end -}}

{{- define "plimsoll.stream" -}}
- {name: PLIMSOLL_STREAM_REPLICAS, value: {{ include "plimsoll.number" .Values.stream.replicas | quote }}}
{{- with .Values.stream.maxBytes }}
- {name: PLIMSOLL_STREAM_MAX_BYTES, value: {{ include "plimsoll.number" . | quote }}}
{{- end }}
{{- with .Values.stream.maxAgeS }}
- {name: PLIMSOLL_STREAM_MAX_AGE_S, value: {{ include "plimsoll.number" . | quote }}}
{{- end }}
{{- end -}}

{{/* Where the Service of the API server leads nowhere, its address. */}}
{{- define "plimsoll.apiServer" -}}
{{- with .Values.apiServer.host }}
- {name: KUBERNETES_SERVICE_HOST, value: {{ . | quote }}}
- {name: KUBERNETES_SERVICE_PORT, value: {{ $.Values.apiServer.port | quote }}}
{{- end }}
{{- end -}}

{{/* The bus, for a user of it: `placer`, `monitor` or `alerts`. The password's variable comes first: the URL names it. */}}
{{- define "plimsoll.nats" -}}
{{- $root := .root -}}
{{- $nats := $root.Values.nats -}}
{{- if $nats.enabled }}
- name: NATS_PASSWORD
  valueFrom:
    secretKeyRef: {name: {{ toYaml $root.Values.credentials.secret }}, key: nats-{{ .user }}-password}
- name: PLIMSOLL_NATS_URL
  value: {{ ternary "tls" "nats" (not (empty $nats.tlsSecret)) }}://{{ .user }}:$(NATS_PASSWORD)@plimsoll-nats.{{ $root.Release.Namespace }}.svc:{{ $nats.port }}
{{- else if $nats.external.secret }}
- name: PLIMSOLL_NATS_URL
  valueFrom:
    secretKeyRef: {name: {{ toYaml $nats.external.secret }}, key: {{ toYaml (get $nats.external (printf "%sKey" .user)) }}}
{{- else }}
- name: PLIMSOLL_NATS_URL
  value: {{ $nats.external.url | quote }}
{{- end }}
{{- end -}}

{{- define "plimsoll.redis" -}}
{{- $redis := .Values.redis -}}
{{- if $redis.enabled }}
- name: REDIS_PASSWORD
  valueFrom:
    secretKeyRef: {name: {{ toYaml .Values.credentials.secret }}, key: redis-password}
- name: PLIMSOLL_REDIS_URL
  value: {{ ternary "rediss" "redis" (not (empty $redis.tlsSecret)) }}://:$(REDIS_PASSWORD)@plimsoll-redis.{{ .Release.Namespace }}.svc:{{ $redis.port }}/0
{{- else if $redis.external.secret }}
- name: PLIMSOLL_REDIS_URL
  valueFrom:
    secretKeyRef: {name: {{ toYaml $redis.external.secret }}, key: {{ toYaml $redis.external.key }}}
{{- else }}
- name: PLIMSOLL_REDIS_URL
  value: {{ $redis.external.url | quote }}
{{- end }}
{{- end -}}

{{/* Python's TLS reads the authorities of servers from this file, besides those of the image. */}}
{{- define "plimsoll.authority.env" -}}
{{- with .Values.certificateAuthority }}
{{- if .secret }}
- {name: SSL_CERT_FILE, value: /etc/plimsoll/authority/{{ .key }}}
{{- end }}
{{- end }}
{{- end -}}

{{- define "plimsoll.authority.mount" -}}
{{- with .Values.certificateAuthority.secret }}
- {name: authority, mountPath: /etc/plimsoll/authority, readOnly: true}
{{- end }}
{{- end -}}

{{- define "plimsoll.authority.volume" -}}
{{- with .Values.certificateAuthority }}
{{- if .secret }}
- name: authority
  secret:
    secretName: {{ toYaml .secret }}
    items: [{key: {{ toYaml .key }}, path: {{ toYaml .key }}}]
{{- end }}
{{- end }}
{{- end -}}

{{/* The fields that Pod Security's profile `restricted` demands of a container. The part's securityContext has those of the pod. */}}
{{- define "plimsoll.restricted.container" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: ["ALL"]}
{{- end -}}

{{/* The account of a part. */}}
{{- define "plimsoll.account" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: plimsoll-{{ .part }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{ include "plimsoll.labels" . | nindent 4 }}
  {{- with (get .root.Values .part).serviceAccountAnnotations }}
  annotations: {{ toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}

{{/* Labels and annotations of a part's pods; `selector` and `annotations` are those that its template adds. */}}
{{- define "plimsoll.podMetadata" -}}
{{- $part := get .root.Values .part -}}
{{- $own := merge (fromYaml (include "plimsoll.selector" .part)) (.selector | default dict) -}}
labels: {{ include "plimsoll.labels" (dict "root" .root "part" .part "labels" (merge $own ($part.podLabels | default dict))) | nindent 2 }}
{{- with merge (.annotations | default dict) ($part.podAnnotations | default dict) }}
annotations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The fields that every pod of ours has, from the values of its part. */}}
{{- define "plimsoll.pod" -}}
{{- $part := get .root.Values .part -}}
# Kubernetes would give each pod variables such as PLIMSOLL_WEBHOOK_PORT for the Services of this namespace.
enableServiceLinks: false
{{- $of_nodes := ternary .root.Values.nodes.priorityClassName "" (has .part (list "monitor" "broker")) }}
{{- with $of_nodes | default .root.Values.priorityClass.name }}
priorityClassName: {{ toYaml . }}
{{- end }}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
{{- if $part.hostNetwork }}
hostNetwork: true
dnsPolicy: ClusterFirstWithHostNet
{{- end }}
{{- $context := dict }}
{{- range $field, $value := $part.securityContext }}
{{- if not (kindIs "invalid" $value) }}{{ $context = set $context $field $value }}{{ end }}
{{- end }}
{{- with $context }}
securityContext: {{ toYaml . | nindent 2 }}
{{- end }}
{{- range $field := list "nodeSelector" "affinity" "tolerations" }}
{{- with get $part $field }}
{{ $field }}: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end -}}

{{/* How the pods of a Deployment are replaced: on a node's network, a second one would find its port taken. */}}
{{- define "plimsoll.strategy" -}}
strategy:
  rollingUpdate: {{ ternary "{maxSurge: 0, maxUnavailable: 1}" "{maxSurge: 1, maxUnavailable: 0}" .hostNetwork }}
{{- end -}}

{{/* A part that hangs is started anew; at its start it has two minutes. */}}
{{- define "plimsoll.alive" -}}
livenessProbe:
  httpGet: {path: {{ . }}, port: http}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
startupProbe:
  httpGet: {path: {{ . }}, port: http}
  periodSeconds: 2
  failureThreshold: 60
{{- end -}}

{{/*
The nodes of monitor and broker, and NVIDIA's runtime there: the nodes of one pool, or all without a pool of `pools`.
The label `plimsoll.dev/node` ends neither of them: without a broker the kubelet could not end the pods that have a volume.
*/}}
{{- define "plimsoll.nodes" -}}
{{- with .root.Values.nodes.selector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- if or .pool .pools }}
affinity:
  nodeAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      nodeSelectorTerms:
        - matchExpressions:
            {{- if .pool }}
            - {key: {{ toYaml .root.Values.nodes.enforcementLabel }}, operator: In, values: [{{ .pool }}]}
            {{- else }}
            - {key: {{ toYaml .root.Values.nodes.enforcementLabel }}, operator: NotIn, values: {{ toJson .pools }}}
            {{- end }}
{{- end }}
{{- with .root.Values.nodes.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- if eq .root.Values.gpuAccess "runtime-class" }}
runtimeClassName: {{ toYaml .root.Values.runtimeClass }}
{{- end }}
{{- end -}}

{{/* NVIDIA's runtime reads these. `utility` brings NVML, and not CUDA. */}}
{{- define "plimsoll.nvml" -}}
- {name: NVIDIA_VISIBLE_DEVICES, value: all}
- {name: NVIDIA_DRIVER_CAPABILITIES, value: utility}
{{- end -}}

{{/* Pods that have a port with metrics may be asked by these alone. */}}
{{- define "plimsoll.readers" -}}
- podSelector: {}
{{- with .Values.networkPolicy.readers }}
{{ toYaml . }}
{{- end }}
{{- end -}}
