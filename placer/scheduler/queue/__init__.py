"""The order in which pods are tried, and the pods that fit nowhere until something changes.

`states` is the table of a pod's states, `queued_pod` the record of a waiting pod, and `queue` the whole. `active`
holds the pods that may be tried now and those that back off, `unschedulable` those that fit nowhere, and
`queueing_hints` says which of these a change could help. Not here: a pod's place in the queue for people
(`placer.kube.queue_position`).
"""
