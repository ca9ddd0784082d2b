"""The zones and regions that the labels of a volume name: the rule of volumes from before node affinity.

Follows Kubernetes 1.36, plugin `volumezone`. Pure.
"""

from collections.abc import Iterable, Mapping
from typing import Final

_TODAY: Final = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
}
"""Labels of earlier times, each with the label that nodes have today."""
LABELS: Final = (*_TODAY, *_TODAY.values())

Zones = tuple[tuple[str, frozenset[str]], ...]
"""Labels with values: of each label, a node must have one of the values."""


def zones_of(labels: Mapping[str, str]) -> Zones:
    """The zones in a volume's labels. A label may list several; a damaged list is ignored."""
    zones = []
    for key in LABELS:
        values = (
            frozenset(value.strip() for value in labels[key].split("__")) if key in labels else frozenset()
        )
        if values and "" not in values:
            zones.append((key, values))
    return tuple(zones)


def is_elsewhere(volumes: Iterable[Zones], labels: Mapping[str, str]) -> bool:
    """Whether a node with these labels is in another zone than one of the volumes. A node without zones is not."""
    if not any(key in labels for key in LABELS):
        return False
    return any(
        labels.get(key, labels.get(_TODAY.get(key, key))) not in values
        for zones in volumes
        for key, values in zones
    )
