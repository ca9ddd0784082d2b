"""Handlers of the changes that the watches show.

`watches` says which handler takes the changes of which objects: `pods`, `nodes` or `namespaces`; those of volumes are
taken in `placer.scheduler.plugins.volumes`. `cluster_events` is how a change reaches pods that fit nowhere.
"""
