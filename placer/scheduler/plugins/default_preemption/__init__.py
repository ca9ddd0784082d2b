"""Preemption: pods of lower priority end, so that a pod that fits nowhere gets their room.

`preempting` is the course of it all, and `nominating` holds the room meanwhile (`placer.scheduler.pods.nominator`).
`budgets` has the disruption budgets, `victims` the cheapest victims on a node, and `victim_search` those in the
cluster. `writes` are the writes and `orders` their order; `stuck` finds the pods that never end. Relocation uses
nominations and orders too (`placer.relocation`). Plugins say which reasons the end of pods can lift
(`placer.scheduler.framework`).
"""
