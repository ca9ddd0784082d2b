"""Persistent volumes: the store that VolumeRestrictions, NodeVolumeLimits, VolumeBinding and VolumeZone read.

Here: the storage objects as decisions read them (`objects`), all of them with what is assumed of them (`store`), the
watches that fill the store (`watches`), and the plugins in kube-scheduler's order (`plugins`).

What always holds: order, arithmetic and texts of the plugins are those of kube-scheduler 1.36. Volumes that
Kubernetes moved from its own tree to CSI drivers are refused by name.
"""
