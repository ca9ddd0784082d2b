"""The controller of the GPU pool: `python -m placer.pool`, a process of its own.

It takes GPUs from NVIDIA's device plugin for pods that share, and gives idle ones back (KubeShare, HPDC 2020, §4.4).
Here: what the objects of the cluster say about the pool (`core.facts`), when a GPU is taken and given back
(`core.planner`, `core.release_policy`), the pods that hold GPUs (`reservations`), watches and writes
(`controller`), events for people (`events`), and the program by which a reservation names its GPU (`card`). Not here:
the use of the pool, which is the placer's (`placer.core.pool`, `placer.kube.pool`), and the words between the two
(`plimsoll.pool`).

What always holds: the pool is the set of reservation pods on the API server. The controller keeps nothing else, so a
controller that starts anew, or two at once, read the same pool. It deletes no pod but reservations. A reservation
whose GPU pods use is never deleted by it.
"""
