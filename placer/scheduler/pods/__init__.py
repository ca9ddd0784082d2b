"""Pods as the scheduler reads them: those that wait, those that have a node, and those that are nominated for one.

`pending` is a pod without a node from one attempt to the next, and `info` the same pod as its decision reads it;
`lengths` and `unhandled` refuse pods that cannot be read or decided. `assigned` are the pods that have a node,
`nominator` those that wait for victims to end, and `pods` has all of them for readers. The order in which pods are
tried is the queue's (`placer.scheduler.queue`).
"""
