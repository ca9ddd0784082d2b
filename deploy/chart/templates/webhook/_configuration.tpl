{{/* The fields that all webhooks share. `resources` and `operation` say which requests about pods they review. */}}
{{- define "plimsoll.webhook" -}}
rules:
  - {apiGroups: [""], apiVersions: ["v1"], operations: ["{{ .operation }}"], resources: ["{{ .resource }}"], scope: Namespaced}
clientConfig:
  {{- if .root.Values.webhook.url }}
  url: {{ .root.Values.webhook.url }}
  {{- else }}
  service: {name: plimsoll-webhook, namespace: {{ .root.Release.Namespace }}, path: /review}
  {{- end }}
admissionReviewVersions: ["v1"]
sideEffects: None
timeoutSeconds: 5
reinvocationPolicy: IfNeeded
namespaceSelector:
  matchExpressions:
    # The webhook's own pods must never wait for the webhook.
    - {key: kubernetes.io/metadata.name, operator: NotIn, values: {{ concat (list .root.Release.Namespace) .root.Values.webhook.excludedNamespaces | toJson }}}
    # The pods of a namespace with this label bring their own mounts.
    - {key: plimsoll.dev/webhook, operator: NotIn, values: ["off"]}
{{- end -}}

{{/* CEL: a container asks for a resource of ours, or the pod has an annotation of ours. */}}
{{- define "plimsoll.asks" -}}
(object.spec.containers + object.spec.?initContainers.orValue([])).exists(container,
  container.?resources.?limits.orValue({}).exists(name, name.startsWith("plimsoll.dev/"))
  || container.?resources.?requests.orValue({}).exists(name, name.startsWith("plimsoll.dev/")))
|| object.metadata.?annotations.orValue({}).exists(name,
  name.startsWith("plimsoll.dev/") || name.startsWith("gpus.plimsoll.dev/"))
{{- end -}}

{{/* CEL: a container asks for one of these resources. */}}
{{- define "plimsoll.asksFor" -}}
(object.spec.containers + object.spec.?initContainers.orValue([])).exists(container,
  container.?resources.?limits.orValue({}).exists(name, name in {{ . }})
  || container.?resources.?requests.orValue({}).exists(name, name in {{ . }}))
{{- end -}}
