"""Persistent volumes: the nodes that a pod's claims allow, and the binding of claims before that of the pod.

Here: the storage objects as the watches show them (`storage`, `watches`), the reading of a pod's claims (`ask`), a
file for each rule about nodes (`matching`, `provisioning`, `zones`, `limits`; disks are in `users`), the volumes
that a node offers (`offers`), the answers per node (`index`), the volumes that a placed pod reserves (`reservation`),
and the writes that bind claims and the wait for their end (`binder`). Not here: the choice of a node, and the pods
that wait for a claim (`placer.scheduler.plugins.volumes.waiting`).

What always holds: order, arithmetic and texts are those of kube-scheduler 1.36, plugins `volumerestrictions`,
`nodevolumelimits`, `volumebinding` and `volumezone`. Volumes that Kubernetes moved from its own tree to CSI drivers
are refused by name.
"""
