"""Pods of ours beside pods of default-scheduler on one real kubelet: how long they take to start, and to run.

`pod_kinds` makes the pods of both, and `timeline` watches them. `creation` starts both in turn, one and many at once,
also where the pool must first take a GPU for ours. `program` runs a whole program in both. All of it happens on the
node of `tests.node`, with Plimsoll from its images and its chart, on emulated GPUs.
"""
