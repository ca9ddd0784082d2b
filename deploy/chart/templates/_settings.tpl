{{/* Written by `python -m tools.chart` from the settings' own rules: refusals.yaml reads them. */}}
{{- define "plimsoll.rulesOfSettings" -}}
[
  {"part": "webhook", "field": "certificate_life_s", "other": "check_s", "factor": 100, "defaults": {"certificate_life_s": 7776000.0, "check_s": 60.0}}
]
{{- end -}}
