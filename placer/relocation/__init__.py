"""Relocation in a cluster: moves pods that allow it, so that a waiting pod gets a GPU.

`relocating` decides when to move, by `rules`. `movers` says which pods may move, and `board` is the cluster as the
search plays on it. `kept` keeps rooms for replacements, and `memory` stores them for the next leader. `preview`
answers people. Not here: the search itself, which is pure (`placer.core.relocation`), and nominations and evictions,
which are carried out as for preemption (`placer.scheduler.plugins.default_preemption`).
"""
