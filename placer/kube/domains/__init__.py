"""Rules of pods about other pods, by topology domain: spread constraints, and required affinity and anti-affinity.

A domain is the set of nodes that have the same value of a label, the topology key. Here: selectors of pods
(`selectors`), a pod's rules (`rules`), the counts of pods by domain (`counts`), the index of the counts for the rules
in use (`index`), and the check of one node (`check`). Not here: the domains that pods with a node close to others
(`placer.kube.antiaffinity`).

What always holds: a decision reads counts, never pods. The check of a node costs one look-up for each rule. Follows
Kubernetes 1.36, `pkg/scheduler/framework/plugins/{podtopologyspread,interpodaffinity}`. Pure.
"""
