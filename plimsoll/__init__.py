"""What outsiders import and all parts share: the contracts of Plimsoll, and nothing that acts on them.

Here belong the pod contract, event and wire formats, names, units and settings, and the few adapters that
more than one part needs (Kubernetes transport, embedded servers). Nothing here imports `monitor`,
`placer` or `hook`; import-linter checks that.
"""
