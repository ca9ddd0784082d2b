"""Relocation in a cluster: moves pods that allow it, so that a waiting pod gets a GPU.

Here belong the rules about which pods may move, the board on which the search plays, the rooms that are kept for
replacements, and the decision when to move. The search itself is pure (`placer.core.relocation`). Nominations and
evictions are carried out as for preemption (`placer.kube.preemption.orders`).
"""
