"""Counts of pods by topology domain, which PodTopologySpread and InterPodAffinity read.

A domain is the set of nodes that have the same value of a label, the topology key. Here: a pod's constraints on the
pods of a domain (`constraints`), with the pods and nodes that count for each (`matching`); the counts (`counts`), and
the store of those that are in use (`store`). Not here: the decision by these counts, which is the plugins'.

What always holds: a decision reads counts, never pods. Pure.
"""
