"""The reasons why a node is unfit for a pod's volumes, in kube-scheduler's texts."""

from typing import Final

from plimsoll.broker.volume import DRIVER

DISK: Final = "node(s) had no available disk"
IN_USE: Final = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by "
    "another pod"
)
LIMIT: Final = "node(s) exceed max volume count"
NODE_AFFINITY: Final = "node(s) didn't match PersistentVolume's node affinity"
NO_VOLUME: Final = "node(s) didn't find available persistent volumes to bind"
NO_SPACE: Final = "node(s) did not have enough free storage"
VOLUME_GONE: Final = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
NO_DRIVER: Final = f"{DRIVER} CSI driver is not installed on the node"
ZONE: Final = "node(s) had no available volume zone"

OF_VOLUMES: Final = frozenset(
    {DISK, IN_USE, LIMIT, NODE_AFFINITY, NO_DRIVER, NO_VOLUME, NO_SPACE, VOLUME_GONE, ZONE}
)
