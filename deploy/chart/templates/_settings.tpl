{{/* Written by `python -m tools.chart` from the settings' own rules: refusals.yaml reads them. */}}
{{- define "plimsoll.rulesOfSettings" -}}
[
  {"part": "webhook", "field": "certificate_life_s", "other": "check_s", "factor": 100, "defaults": {"certificate_life_s": 7776000.0, "check_s": 60.0}},
  {"part": "broker", "field": "share_ahead_ms", "other": "share_tick_ms", "factor": 1, "defaults": {"share_ahead_ms": 10.0, "share_tick_ms": 5.0}},
  {"part": "broker", "field": "share_alone_ms", "other": "share_ahead_ms", "factor": 1, "defaults": {"share_alone_ms": 100.0, "share_ahead_ms": 10.0}}
]
{{- end -}}
