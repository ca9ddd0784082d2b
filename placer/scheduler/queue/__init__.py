"""The order in which pods are tried, and the pods that fit nowhere until something changes.

`queue` is the whole; `lanes` hold the pods that may be tried now, `kinds` and `parking` those that fit nowhere.
`tries` is the work that the queue gives out, `retry_allowance` bounds the time of retries, and `hints` say which
parked pods a change could help. Not here: a pod's place in the queue for people (`placer.kube.queue_position`).
"""
