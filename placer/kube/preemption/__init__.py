"""Preemption: pods of lower priority end, so that a pod that fits nowhere gets their room.

`liftable` has the reasons that the end of pods can lift, `budgets` the disruption budgets, `victims` the cheapest
victims on a node and `victim_search` those in the cluster, `writes` the writes and `orders` their order, `stuck` the
pods that never end, and `preempting` the course of it all. The room that is held meanwhile is a nomination
(`placer.kube.pods.nominations`).
"""
