"""The number of volumes of one driver that can be attached to a node.

Follows Kubernetes 1.36, plugin `nodevolumelimits`. A volume that a node has attached and no pod there uses counts
beside the same volume of a new pod, as in kube-scheduler. Pure.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from plimsoll.kube.storage_models import CsiNode

Limits = Mapping[str, int]
"""The most volumes, by driver; a driver without an entry has no limit."""


class Attachable(NamedTuple):
    """A volume as its driver knows it."""

    driver: str
    handle: str


@dataclass(frozen=True, slots=True)
class Attached:
    """The volumes on one node.

    Attributes:
        used: the volumes of pods.
        counts: by driver, the number of those of pods and of those that are attached without a pod.
    """

    used: frozenset[Attachable]
    counts: Mapping[str, int]


def attached(used: Iterable[Attachable], attachments: Iterable[Attachable]) -> Attached:
    """Count the volumes of pods, and those that are attached."""
    volumes = frozenset(used)
    return Attached(volumes, Counter(one.driver for one in volumes | set(attachments)))


def exceeds(wanted: Iterable[Attachable], node: Attached, limits: Limits) -> bool:
    """Whether a pod with these volumes is too much for a node."""
    new = Counter(one.driver for one in frozenset(wanted) - node.used)
    return any(
        driver in limits and node.counts.get(driver, 0) + count > limits[driver]
        for driver, count in new.items()
    )


def limits_of(node: CsiNode) -> Limits:
    """The limits that a node's drivers report."""
    return {
        driver.name: driver.allocatable.count
        for driver in node.spec.drivers or ()
        if driver.allocatable is not None and driver.allocatable.count is not None
    }
