"""VolumeBinding: the volumes of a pod's claims, those that exist (static) and those that are made (dynamic).

Here: the claims of a pod and the volumes for them on one node (`pod_volumes`), and the writes that bind claims before
their pod, with the wait for their end (`binder`). What always holds: order, arithmetic and texts are those of
kube-scheduler 1.36.
"""
