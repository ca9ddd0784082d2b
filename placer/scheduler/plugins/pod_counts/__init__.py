"""Counts of pods by topology domain, which PodTopologySpread and InterPodAffinity read.

A domain is the set of nodes that have the same value of a label, the topology key. Here: the counts (`counts`), and
the store of those that are in use (`store`). Not here: a pod's constraints on the pods of a domain
(`placer.scheduler.pods.constraints`), and the decision by these counts, which is the plugins'.

What always holds: a decision reads counts, never pods. Pure.
"""
