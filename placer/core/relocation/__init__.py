"""Relocation: which pods should move, and where to, so that a waiting pod has a place. Pure.

Here belong the search for the fewest moves and the measure among equal ones. Which pods may move, where a pod fits,
and all writes belong to the front end (`placer.kube.relocation`).
"""
