"""The contracts that all parts share and that outsiders import.

Here belong the pod contract, event and wire formats, names, units and settings, and the few adapters that
more than one part needs (Kubernetes transport, NVML, child processes). Nothing here imports another package of ours
but `__main__.py`, which is the command; import-linter checks that.
"""
