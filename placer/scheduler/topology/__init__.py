"""Rules and wishes of pods about other pods, by topology domain: spread constraints, affinity and anti-affinity.

A domain is the set of nodes that have the same value of a label, the topology key. Here: selectors of pods
(`selectors`), a pod's rules (`rules`) and wishes (`wishes`), the counts of pods by domain (`counts`), the index of
the counts for those in use (`index`), the check of one node (`check`), and how far it meets the wishes (`gauge`).
Not here: the domains that pods with a node close to others (`placer.scheduler.topology.antiaffinity`).

What always holds: a decision reads counts, never pods. A node costs one look-up for each rule and wish. Follows
Kubernetes 1.36, `pkg/scheduler/framework/plugins/{podtopologyspread,interpodaffinity}`. Pure.
"""
