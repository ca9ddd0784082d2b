"""Pods as the scheduler reads them.

`pod_info` is a pod as its decision reads it, with its `constraints` on other pods, and the pods and nodes that count
for each (`matching`). `refusals` and `held` refuse pods that cannot be read, decided or held to their lines. `index`
has all pods for readers. Not here: the pods without a node, which are the queue's (`placer.scheduler.queue`), and
those with one, which are the cache's (`placer.scheduler.cache`).
"""
