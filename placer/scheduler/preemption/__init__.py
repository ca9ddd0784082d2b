"""Preemption: pods of lower priority end, so that a pod that fits nowhere gets their room.

`post_filter` is the course of it all. `victim_search` finds the cheapest victims in the cluster, and `victims` those
on one node; `budgets` has the disruption budgets. `executor` writes the nomination and ends the victims, by `writes`.
`nominated_pods` holds their room meanwhile (`placer.scheduler.pods.nominator`), and `stuck_pods` finds the pods that
never end. Relocation uses nominations and writes too (`placer.relocation`). Plugins say which reasons the end of pods
can lift (`placer.scheduler.framework`).
"""
