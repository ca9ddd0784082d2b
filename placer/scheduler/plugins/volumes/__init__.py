"""Persistent volumes: the store that VolumeRestrictions, NodeVolumeLimits, VolumeBinding and VolumeZone read.

Here: the storage objects as decisions read them (`objects`), what is assumed of them (`assume_cache`), the volumes
that no claim has (`free_volumes`), all objects (`store`) and the watches that fill it (`watches`). Not here: the
plugins, which stand beside this folder under their names; `volume_plugins` runs them in kube-scheduler's order.

What always holds: order, arithmetic and texts of the plugins are those of kube-scheduler 1.36. Volumes that
Kubernetes moved from its own tree to CSI drivers are refused by name.
"""
