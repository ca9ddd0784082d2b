"""Relocation in a cluster: moves pods that allow it, so that a waiting pod gets a GPU.

`relocator` decides when to move, by `rules`. `evictable` says which pods may move, and `snapshot` is what the search
reads of the cluster. `evictor` evicts them, and `replacements` holds rooms for the pods that come in their place;
`memory` stores both for the next leader. `preview` answers people. Not here: the search itself, which is pure
(`placer.core.relocation`), and nominations, which are held as for preemption
(`placer.scheduler.preemption`).
"""
