{{/*
The configuration of NATS. Each user may do what its part does and no more: a monitor cannot report a placement, and
an operator cannot report for a node. tests/deploy runs the parts against a server with this file.
*/}}
{{- define "plimsoll.nats.conf" -}}
{{- $nats := .Values.nats -}}
host: {{ .Values.listenAddress | quote }}
port: {{ $nats.port }}
http_port: 8222
server_name: $POD_NAME
jetstream {
  store_dir: /data
}
authorization {
  users: [
    {user: placer, password: $PLACER_PASSWORD}
    {
      user: monitor, password: $MONITOR_PASSWORD
      permissions: {
        # Events of its node, and the stream that keeps them. All nodes use the same password. A monitor listens
        # to its own node's reports, to notice another monitor under its name.
        publish: [
          "plimsoll.v1.task.*.*", "plimsoll.v1.node.*.*", "plimsoll.v1.gpu.*.*", "plimsoll.v1.limit.*.*"
          "$JS.API.INFO", "$JS.API.STREAM.INFO.PLIMSOLL", "$JS.API.STREAM.CREATE.PLIMSOLL"
          "$JS.API.STREAM.MSG.GET.PLIMSOLL", "$JS.API.DIRECT.GET.PLIMSOLL", "$JS.API.DIRECT.GET.PLIMSOLL.>"
        ]
        subscribe: ["_INBOX.>", "plimsoll.v1.task.*.*", "plimsoll.v1.node.*.*"]
      }
    }
    {
      user: operator, password: $OPERATOR_PASSWORD
      permissions: {
        # `plimsoll events`: it reads the stream, and nothing else.
        publish: [
          "$JS.API.INFO", "$JS.API.STREAM.NAMES", "$JS.API.STREAM.INFO.PLIMSOLL",
          "$JS.API.CONSUMER.INFO.PLIMSOLL.>", "$JS.API.CONSUMER.CREATE.PLIMSOLL", "$JS.API.CONSUMER.CREATE.PLIMSOLL.>"
          "$JS.API.CONSUMER.DELETE.PLIMSOLL.>"
          "$JS.API.CONSUMER.MSG.NEXT.PLIMSOLL.>", "$JS.ACK.PLIMSOLL.>", "$JS.FC.>"
        ]
        subscribe: ["_INBOX.>", "plimsoll.v1.>"]
      }
    }
    {{- if .Values.alerts.enabled }}
    {
      user: alerts, password: $ALERTS_PASSWORD
      permissions: {
        # It reads the stream, and nothing else.
        publish: [
          "$JS.API.INFO", "$JS.API.STREAM.INFO.PLIMSOLL", "$JS.API.CONSUMER.INFO.PLIMSOLL.>"
          "$JS.API.CONSUMER.CREATE.PLIMSOLL", "$JS.API.CONSUMER.CREATE.PLIMSOLL.>"
          "$JS.API.CONSUMER.MSG.NEXT.PLIMSOLL.>"
        ]
        subscribe: ["_INBOX.>"]
      }
    }
    {{- end }}
  ]
}
{{- if $nats.tlsSecret }}
tls {
  cert_file: /etc/nats-tls/tls.crt
  key_file: /etc/nats-tls/tls.key
}
{{- end }}
{{- if gt (int $nats.replicas) 1 }}
cluster {
  name: plimsoll
  host: {{ .Values.listenAddress | quote }}
  port: 6222
  authorization {
    user: route, password: $ROUTE_PASSWORD
  }
  {{- if $nats.tlsSecret }}
  tls {
    cert_file: /etc/nats-tls/tls.crt
    key_file: /etc/nats-tls/tls.key
    ca_file: /etc/nats-tls/ca.crt
  }
  {{- end }}
}
{{- end }}
{{- end -}}

{{- define "plimsoll.nats.routes" -}}
{{- $routes := list -}}
{{- range $index := until (int .Values.nats.replicas) -}}
{{- $routes = append $routes (printf "nats-route://route:$(ROUTE_PASSWORD)@plimsoll-nats-%d.plimsoll-nats.%s.svc:6222" $index $.Release.Namespace) -}}
{{- end -}}
{{- join "," $routes -}}
{{- end -}}
