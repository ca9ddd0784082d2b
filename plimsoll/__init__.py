"""The contracts that all parts share and that outsiders import.

Here belong the pod contract, event and wire formats, names, units and settings, and the few adapters that
more than one part needs (Kubernetes transport, NVML, embedded servers). Nothing here imports `monitor`, `placer` or
`hook`; import-linter checks that.
"""
