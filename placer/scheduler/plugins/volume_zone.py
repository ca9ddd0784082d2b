"""VolumeZone: the zones and regions that the labels of a volume name, as volumes did before node affinity. Pure."""

from collections.abc import Iterable, Mapping
from typing import Final

ZONE_CONFLICT: Final = "node(s) had no available volume zone"

_TODAY: Final = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
}
"""Labels of earlier times, each with the label that nodes have today."""
_LABELS: Final = (*_TODAY, *_TODAY.values())


def filter_node(volumes: Iterable[Mapping[str, str]], labels: Mapping[str, str]) -> str | None:
    """The reason why a node is in another zone than one of the volumes, or None. A node without zones is not.

    Args:
        volumes: the labels of the volumes. A label may list several zones; a damaged list is ignored.
        labels: the node's.
    """
    if not any(key in labels for key in _LABELS):
        return None
    for volume in volumes:
        for key in _LABELS:
            if key in volume:
                zones = {zone.strip() for zone in volume[key].split("__")}
                if "" not in zones and labels.get(key, labels.get(_TODAY.get(key, key))) not in zones:
                    return ZONE_CONFLICT
    return None
