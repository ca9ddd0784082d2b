"""Nominated pods: each waits for victims on a node to end, and the room that they free is held for it.

Pods of other schedulers count too, by `status.nominatedNodeName`. The room is held against pods of lower priority,
and against pods of equal priority that are not nominated for the node, or were so later. Pods of higher priority may
take it. What always holds: a pod has one nomination at most. Pure.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from placer.core.booking import Booking
from placer.scheduler.pods.assigned_pods import priority_of
from placer.scheduler.pods.constraints import AffinityTerm, readable_anti_affinity_of
from placer.scheduler.pods.needs import Needs
from plimsoll.contract import SCHEDULER_NAME
from plimsoll.ids import NodeName, PodUid
from plimsoll.kube.models import Pod


@dataclass(slots=True, eq=False)
class Nomination:
    """A pod without a node, for which a node's room is held.

    Attributes:
        pod: the pod as it was when it was nominated.
        node: its nominated node.
        needs: the resources of the node that are held.
        booking: the GPUs that are held; None for a pod that wants none, and while they are not known.
        victims: the pods that are deleted for it, as far as this process knows.
        number: the order of nominations.
        anti_affinity: the pod's required anti-affinity.
    """

    pod: Pod
    node: NodeName
    needs: Needs
    booking: Booking | None = None
    victims: frozenset[PodUid] = frozenset()
    number: int = field(default=0, init=False)
    anti_affinity: tuple[AffinityTerm, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.anti_affinity = readable_anti_affinity_of(self.pod)

    @property
    def uid(self) -> PodUid:
        """The pod's uid."""
        return PodUid(self.pod.metadata.uid)

    @property
    def priority(self) -> int:
        """The pod's priority."""
        return priority_of(self.pod)

    @property
    def is_ours(self) -> bool:
        """Whether this scheduler places the pod."""
        return self.pod.spec.schedulerName == SCHEDULER_NAME


class Nominator:
    """All nominations. Not thread-safe: one event loop owns it."""

    def __init__(self, on_change: Callable[[NodeName], None], on_end: Callable[[NodeName], None]) -> None:
        """Make it without nominations.

        Args:
            on_change: called with each node for which a nomination began or ended.
            on_end: called after that with each node for which a nomination ended or moved: others may have its room.
        """
        self._on_change, self._on_end = on_change, on_end
        self._known: dict[PodUid, Nomination] = {}
        self._by_node: dict[NodeName, dict[PodUid, Nomination]] = {}
        self._anti_affinity: Counter[AffinityTerm] = Counter()
        self._numbers = 0

    def put(self, nomination: Nomination) -> None:
        """Hold room for a pod. It keeps its place among equals if it was nominated for the node before."""
        known = self._known.get(nomination.uid)
        if known is not None and known.node == nomination.node:
            nomination.number = known.number
        else:
            self._numbers += 1
            nomination.number = self._numbers
        self.drop(nomination.uid)
        self._known[nomination.uid] = nomination
        self._by_node.setdefault(nomination.node, {})[nomination.uid] = nomination
        self._anti_affinity.update(nomination.anti_affinity)
        self._on_change(nomination.node)

    def hold_gpus(self, nomination: Nomination, booking: Booking) -> None:
        """Hold these GPUs for a nominated pod, in place of those that were held."""
        if booking != nomination.booking:
            before, nomination.booking = nomination.booking, booking
            self._on_change(nomination.node)
            if before is not None:
                self._on_end(nomination.node)

    def drop(self, uid: PodUid) -> Nomination | None:
        """Hold no room for a pod any more; returns the nomination that ended, or None."""
        known = self._known.pop(uid, None)
        if known is not None:
            del self._by_node[known.node][uid]
            if not self._by_node[known.node]:
                del self._by_node[known.node]
            self._anti_affinity -= Counter(known.anti_affinity)
            self._on_change(known.node)
            self._on_end(known.node)
        return known

    def find(self, uid: PodUid) -> Nomination | None:
        """A pod's nomination, or None."""
        return self._known.get(uid)

    def are_on(self, node: NodeName) -> bool:
        """Whether a node has nominations."""
        return node in self._by_node

    @property
    def anti_affinity(self) -> Collection[AffinityTerm]:
        """The required anti-affinity terms of nominated pods, each once."""
        return self._anti_affinity.keys()

    def on(self, node: NodeName) -> tuple[Nomination, ...]:
        """The nominations for a node."""
        return tuple(self._by_node[node].values()) if node in self._by_node else ()

    def nodes(self) -> tuple[NodeName, ...]:
        """The nodes with nominations."""
        return tuple(self._by_node)

    def against(self, pod: Pod, node: NodeName) -> list[Nomination]:
        """The nominations of other pods whose room this pod cannot have."""
        if node not in self._by_node:
            return []
        found, uid, priority = self.on(node), PodUid(pod.metadata.uid), priority_of(pod)
        own = next((one for one in found if one.uid == uid), None)
        return [
            one
            for one in found
            if one is not own
            and (
                one.priority > priority
                or (one.priority == priority and (own is None or one.number < own.number))
            )
        ]

    def against_others(self, priority: int, node: NodeName) -> list[Nomination]:
        """The nominations whose room is held against a pod of this priority that is not nominated itself."""
        return [one for one in self.on(node) if one.priority >= priority]


def bookings_of(nominator: Iterable[Nomination]) -> list[Booking]:
    """The GPUs that are held."""
    return [one.booking for one in nominator if one.booking is not None]
