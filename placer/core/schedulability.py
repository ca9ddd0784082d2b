"""The schedulability of a node: why no new pod is placed there, its taints, and its cordoned GPUs.

What always holds: it follows from the node's object, and from a pause of all placing. The pods that a node has stay,
and count as before. Pure.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from plimsoll.contract import opt_out_of
from plimsoll.cordons import cordoned_gpus
from plimsoll.events import NodeState
from plimsoll.kube.models import Node

CORDONED: Final = "cordoned"
PAUSED: Final = "paused"
NOT_READY: Final = "not ready"
UNKNOWN: Final = "unknown to Kubernetes"

REPELLING: Final = frozenset({"NoSchedule", "NoExecute"})

_SAID_OTHERWISE: Final = frozenset(
    f"node.kubernetes.io/{state}" for state in ("unschedulable", "not-ready", "unreachable")
)
"""Taints that Kubernetes sets beside a field which says the same."""


@dataclass(frozen=True, slots=True)
class Schedulability:
    """The obstacles to new pods on a node.

    Attributes:
        closed: the reasons why no pod is placed there, for people; empty for an open node.
        taints: the taints that pods must tolerate, as `key=value:effect`.
        cordoned: the UUIDs of the GPUs, or of MIG instances' cards, that take no new pods.
    """

    closed: tuple[str, ...] = ()
    taints: tuple[str, ...] = ()
    cordoned: frozenset[str] = frozenset()

    def has_cordoned(self, gpu: str, card: str | None) -> bool:
        """Whether a GPU takes no new pods; `card` is that of a MIG instance."""
        return gpu in self.cordoned or card in self.cordoned

    def stale_cordons(self, state: NodeState) -> tuple[str, ...]:
        """The cordoned UUIDs that belong to no GPU of a report, by name: of a card that was replaced, or misspelt."""
        here = {one for gpu in state.gpus for one in (gpu.uuid, gpu.mig_parent)} | {
            one.gpu for one in state.health
        }
        return tuple(sorted(self.cordoned - here))


OPEN: Final = Schedulability()
ABSENT: Final = Schedulability((UNKNOWN,))
"""The schedulability of a node that reports, and has no object."""


def readiness_of(node: Node) -> str:
    """The status of the condition `Ready`; `True` for a node without one."""
    return next((one.status for one in node.status.conditions or () if one.type == "Ready"), "True")


def schedulability_of(node: Node) -> Schedulability:
    """The schedulability of a node by its object."""
    return Schedulability(
        tuple(_closed(node)),
        tuple(
            f"{taint.key}{'=' if taint.value else ''}{taint.value or ''}:{taint.effect}"
            for taint in node.spec.taints or ()
            if taint.effect in REPELLING and taint.key not in _SAID_OTHERWISE
        ),
        cordoned_gpus(node.metadata.annotations),
    )


def _closed(node: Node) -> Iterator[str]:
    if (off := opt_out_of(node.metadata.labels)) is not None:
        yield off
    if node.spec.unschedulable:
        yield CORDONED
    if readiness_of(node) != "True":
        yield NOT_READY
