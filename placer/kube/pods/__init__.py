"""Pods as the scheduler reads them: those that wait, those that have a node, and those that are nominated for one.

`pending` is a pod without a node from one attempt to the next, and `wanted` the same pod as its decision reads it;
`lengths` and `unhandled` refuse pods that cannot be read or decided. `occupants` are the pods that have a node,
`nominations` those that wait for victims to end, and `pods` has all of them for readers. The order in which pods are
tried is the queue's (`placer.kube.queue`).
"""
