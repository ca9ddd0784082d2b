"""The reasons against a node that the end of some of its pods can lift.

kube-scheduler has the same split, by plugin: `Unschedulable` and `UnschedulableAndUnresolvable`. What always holds: a
reason that is not listed here cannot be lifted, so no pod is deleted because of it. Pure.
"""

from collections.abc import Iterable
from typing import Final

from placer.core import fit
from placer.core.fit import Needs, Offer
from placer.core.reasons import Reason, without_unhealthy
from placer.scheduler.plugins import node_volume_limits, volume_restrictions
from placer.scheduler.plugins.inter_pod_affinity import ANTI_AFFINITY, EXISTING_ANTI_AFFINITY
from placer.scheduler.plugins.pod_topology_spread import SKEWED

LIFTABLE: Final = frozenset(
    {
        fit.PORTS,
        fit.TOO_MANY_PODS,
        EXISTING_ANTI_AFFINITY,
        ANTI_AFFINITY,
        SKEWED,
        volume_restrictions.DISK_CONFLICT,
        volume_restrictions.IN_USE,
        node_volume_limits.TOO_MANY,
        Reason.GPU_MEMORY.value,
        Reason.GPU_SHARE.value,
        Reason.GPU_SHARERS.value,
        Reason.GPU_NOT_EMPTY.value,
        Reason.GPU_TAKEN_WHOLE.value,
        Reason.GPU_COUNT.value,
        Reason.ANTI_AFFINITY.value,
        Reason.EXCLUSION.value,
        Reason.EXCLUDED.value,
    }
)
_SHORTAGE: Final = "Insufficient "


def are_liftable(reasons: Iterable[str]) -> bool:
    """Whether the end of pods can lift all of these reasons; the reasons of one node, in any order."""
    return all(
        reason in LIFTABLE or reason.startswith(_SHORTAGE) for reason in without_unhealthy(tuple(reasons))
    )


def is_too_small(needs: Needs, offer: Offer, reasons: Iterable[str]) -> bool:
    """Whether a pod that lacks resources on a node asks for more than the empty node has."""
    for reason in reasons:
        name = reason.removeprefix(_SHORTAGE)
        if name in needs.amounts and needs.amounts[name] > offer.allocatable.get(name, 0):
            return True
    return False
