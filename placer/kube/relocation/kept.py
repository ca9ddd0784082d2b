"""The rooms that are kept for the replacements of moved pods.

A room is kept as a nomination: first for a pod that stands for the replacement, then for the replacement itself, once
the watch shows it. A replacement is known by its controller and by its demand. What always holds: a room is kept for
a bounded time, and for one pod. The rooms are in memory alone: the next leader keeps none, and places replacements
like any other pods.
"""

import asyncio
from dataclasses import dataclass, field, replace

from placer.kube.cluster import Cluster
from placer.kube.nominations import Nomination
from placer.kube.preempting import Preempting
from placer.kube.relocation.movers import Mover, controller_of
from plimsoll.ids import NodeName, PodUid
from plimsoll.kube.models import Pod
from plimsoll.part.errors import InputError


@dataclass(slots=True)
class Kept:
    """A room that is kept.

    Attributes:
        mover: the pod that moves.
        kind: that of its replacement's demand.
        nomination: holds the room; its pod is the replacement once it is known.
        until_s: when it is given up, on the loop's clock.
        is_leaving: the pod was evicted.
        has_come: the replacement is known.
    """

    mover: Mover
    kind: bytes
    nomination: Nomination
    until_s: float
    is_leaving: bool = False
    has_come: bool = False


@dataclass(slots=True)
class KeptRooms:
    """All kept rooms. Not thread-safe: one event loop owns it.

    Attributes:
        cluster: the nominations.
        preempting: holds rooms, and ends nominations.
    """

    cluster: Cluster
    preempting: Preempting
    _kept: dict[PodUid, Kept] = field(default_factory=dict)  # by the uid of the pod that moves

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, mover: Mover, kind: bytes, nomination: Nomination, for_s: float) -> None:
        """Keep the room of a nomination for the replacement of a pod, whose demand is of this kind."""
        self.cluster.nominations.put(nomination)
        self._kept[mover.movable.pod] = Kept(mover, kind, nomination, _now_s() + for_s)

    def take(self, pod: Pod) -> None:
        """Give a waiting pod the room that is kept for it, if one is."""
        controller = controller_of(pod)
        if controller is None or not self._kept:
            return
        uid = PodUid(pod.metadata.uid)
        if any(one.nomination.uid == uid for one in self._kept.values()):
            return
        for one in self._kept.values():
            if not one.has_come and self._is_replacement(pod, controller.uid, one):
                self._hand_over(pod, one)
                return

    def note_evicted(self, mover: PodUid) -> NodeName | None:
        """Take in that a pod was evicted; returns the node on which room is kept for its replacement, if any is."""
        kept = self._kept.get(mover)
        if kept is None:
            return None
        kept.is_leaving = True
        return kept.nomination.node

    def expire(self, under_way: bool) -> list[Kept]:  # noqa: FBT001 - one flag
        """Give up the rooms whose time is over, and those of pods that were not evicted; returns those given up.

        Args:
            under_way: evictions are still being written.
        """
        given_up: list[Kept] = []
        for uid, one in tuple(self._kept.items()):
            held = self.cluster.nominations.find(one.nomination.uid)
            if held is None or held.node != one.nomination.node:
                del self._kept[uid]  # the replacement has a place, or others had a right to the room
            elif one.until_s <= _now_s() or (not under_way and not (one.is_leaving or one.has_come)):
                del self._kept[uid]
                self.preempting.give_up(one.nomination.uid)
                given_up.append(one)
        return given_up

    def _is_replacement(self, pod: Pod, controller: str, one: Kept) -> bool:
        moved = one.mover.occupant.pod
        owner = controller_of(moved)
        if owner is None or (moved.metadata.namespace, owner.uid) != (pod.metadata.namespace, controller):
            return False
        try:
            return self.preempting.understand(pod).kind == one.kind
        except InputError:
            return False

    def _hand_over(self, pod: Pod, one: Kept) -> None:
        """Let the nomination be that of the replacement."""
        held = self.cluster.nominations.find(one.nomination.uid)
        if held is None:
            return
        self.cluster.nominations.drop(held.uid)
        booking = held.booking
        if booking is not None:
            booking = replace(booking, pod=PodUid(pod.metadata.uid))
        one.nomination = Nomination(pod, held.node, held.needs, booking, held.victims)
        one.has_come = True
        self.preempting.hold(one.nomination)


def _now_s() -> float:
    return asyncio.get_running_loop().time()
