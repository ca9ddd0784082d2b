"""Relocation: which pods should move, and where to, so that a waiting pod has a place. Pure.

Here belong the search for the fewest moves and the measure among equal ones. The front end
(`placer.relocation`) decides which pods may move and where a pod fits, and makes all writes.
"""
