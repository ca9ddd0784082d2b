{{/* Written by `python -m tools.chart` from the settings' own rules: refusals.yaml reads them. */}}
{{- define "plimsoll.rulesOfSettings" -}}
[
  {"part": "webhook", "field": "certificate_life_s", "other": "check_s", "factor": 100, "defaults": {"certificate_life_s": 7776000.0, "check_s": 60.0}},
  {"part": "monitor", "field": "reload_bytes", "other": "tolerance_bytes", "factor": 1, "defaults": {"reload_bytes": 67108864, "tolerance_bytes": 8388608}},
  {"part": "monitor", "field": "pressure_end_pct", "other": "pressure_pct", "factor": 1, "defaults": {"pressure_end_pct": 10.0, "pressure_pct": 5.0}},
  {"part": "broker", "field": "share_ahead_ms", "other": "share_tick_ms", "factor": 1, "defaults": {"share_ahead_ms": 10.0, "share_tick_ms": 5.0}},
  {"part": "broker", "field": "share_alone_ms", "other": "share_ahead_ms", "factor": 1, "defaults": {"share_alone_ms": 100.0, "share_ahead_ms": 10.0}}
]
{{- end -}}
