"""The replacements of moved pods that may still come, and the rooms that are kept for them.

A room is kept as a nomination: first for a pod that stands for the replacement, then for the replacement itself, once
the watch shows it. A replacement is known by its controller and by its demand. What always holds: a room is kept for
one pod, and for a bounded time after the moved pod has ended.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime

from placer.relocation.evictable import controller_of, replacement_of
from placer.relocation.memory import StoredRoom, without_programs
from placer.scheduler.cache.cache import Cache
from placer.scheduler.clock import loop_now_s
from placer.scheduler.pods.assigned_pods import AssignedPod
from placer.scheduler.pods.nominator import Nomination
from placer.scheduler.preemption.nominated_pods import NominatedPods
from plimsoll.ids import NodeName, PodUid
from plimsoll.kube.models import Pod
from plimsoll.part.errors import InputError


@dataclass(slots=True)
class Replacement:
    """A replacement, and the room that is kept for it.

    Attributes:
        moved: the pod that moves, as it was before.
        signature: that of the replacement.
        pod: the nominated pod that holds the room; the replacement once it is known.
        node: the node that has the room.
        since_s: when the room was first kept, in seconds since 1970.
        until_s: when it is given up, on the loop's clock; later while the moved pod still ends.
        is_leaving: the pod was evicted.
        has_come: the replacement is known.
    """

    moved: Pod
    signature: bytes
    pod: PodUid
    node: NodeName
    since_s: float
    until_s: float
    is_leaving: bool = False
    has_come: bool = False


@dataclass(slots=True)
class Replacements:
    """All replacements that are awaited. Not thread-safe: one event loop owns it.

    Attributes:
        cache: the nominations, and the pods that end.
        nominated: holds rooms, and ends nominations.
        keep_s: the longest time in seconds for which a room is kept after the moved pod has ended.
        clock: the wall clock in UTC.
    """

    cache: Cache
    nominated: NominatedPods
    keep_s: float
    clock: Callable[[], datetime]
    _awaited: dict[PodUid, Replacement] = field(default_factory=dict)  # by the uid of the pod that moves

    def __len__(self) -> int:
        return len(self._awaited)

    def keep(self, moved: Pod, signature: bytes, nomination: Nomination) -> None:
        """Keep the room of a nomination for the replacement of a pod, which has this signature."""
        self.cache.nominator.put(nomination)
        since_s, until_s = self.clock().timestamp(), loop_now_s() + self.keep_s
        self._awaited[PodUid(moved.metadata.uid)] = Replacement(
            moved, signature, nomination.uid, nomination.node, since_s, until_s
        )

    def stored(self) -> tuple[StoredRoom, ...]:
        """The rooms that are kept now, for the next leader."""
        return tuple(
            StoredRoom(without_programs(one.moved), one.node, one.since_s) for one in self._awaited.values()
        )

    def restore(self, rooms: tuple[StoredRoom, ...]) -> None:
        """Keep the rooms that an earlier leader kept, for replacements that may still come, or wait already."""
        for stored in rooms:
            if self._is_awaited(stored):
                self._keep_again(stored)
        for waiting in self.nominated.queue:
            self.take(waiting.pod)

    def take(self, pod: Pod) -> None:
        """Give a waiting pod the room that is kept for it, if one is."""
        controller, uid = controller_of(pod), PodUid(pod.metadata.uid)
        if controller is None or not self._awaited or self.cache.is_assumed(uid):
            return
        if any(one.pod == uid for one in self._awaited.values()):
            return
        for one in self._awaited.values():
            if not one.has_come and self._is_replacement(pod, one):
                self._hand_over(pod, one)
                return

    def note_evicted(self, uid: PodUid) -> NodeName | None:
        """Take in that a pod was evicted; returns the node on which room is kept for its replacement, if any is."""
        kept = self._awaited.get(uid)
        if kept is None:
            return None
        kept.is_leaving = True
        return kept.node

    def expire(self, under_way: bool) -> list[Replacement]:  # noqa: FBT001 - one flag
        """Give up the rooms whose time is over, and those of pods that were not evicted; returns those given up.

        Args:
            under_way: evictions are still being written.
        """
        given_up: list[Replacement] = []
        for uid, one in tuple(self._awaited.items()):
            held = self.cache.nominator.find(one.pod)
            if self._still_ends(self.cache.assigned.find(uid)):
                one.until_s = loop_now_s() + self.keep_s
            if held is None or held.node != one.node:
                del self._awaited[uid]  # the replacement has a place, or others had a right to the room
            elif one.until_s <= loop_now_s() or (not under_way and not (one.is_leaving or one.has_come)):
                del self._awaited[uid]
                self.nominated.give_up(one.pod)
                given_up.append(one)
        return given_up

    def _still_ends(self, moved: AssignedPod | None) -> bool:
        """Whether a pod is ending, and not for too long: some controllers replace a pod only once it has ended."""
        return (
            moved is not None
            and moved.pod.metadata.deletionTimestamp is not None
            and not moved.should_have_ended(self.clock().timestamp() - self.keep_s)
        )

    def _is_awaited(self, stored: StoredRoom) -> bool:
        """Whether the replacement for a room of an earlier leader may still come."""
        moved = self.cache.assigned.find(PodUid(stored.moved.metadata.uid))
        if moved is not None:
            return self._still_ends(moved)  # the leader may have died before it evicted the pod
        is_old = self.clock().timestamp() - stored.since_s > self.keep_s
        return not is_old and not any(
            _replaces(one.pod, stored.moved) and _was_made_after(one.pod, stored.since_s)
            for one in self.cache.assigned.on(stored.node)
        )

    def _keep_again(self, stored: StoredRoom) -> None:
        try:
            info = self.nominated.understand(replacement_of(stored.moved))
        except InputError:
            return  # other settings may refuse it now
        # Which GPUs are held is found out when the leader checks all nominations.
        self.keep(stored.moved, info.signature, Nomination(info.pod, stored.node, info.needs))
        kept = self._awaited[PodUid(stored.moved.metadata.uid)]
        kept.since_s, kept.is_leaving = stored.since_s, True

    def _is_replacement(self, pod: Pod, one: Replacement) -> bool:
        try:
            return _replaces(pod, one.moved) and self.nominated.understand(pod).signature == one.signature
        except InputError:
            return False

    def _hand_over(self, pod: Pod, one: Replacement) -> None:
        """Let the nomination be that of the replacement."""
        held = self.cache.nominator.find(one.pod)
        if held is None:
            return
        self.cache.nominator.drop(held.uid)
        booking = held.booking
        if booking is not None:
            booking = replace(booking, pod=PodUid(pod.metadata.uid))
        nomination = Nomination(pod, held.node, held.needs, booking, held.victims)
        one.pod, one.has_come = nomination.uid, True
        self.nominated.hold(nomination)


def _replaces(pod: Pod, moved: Pod) -> bool:
    """Whether one controller made both pods."""
    controller, owner = controller_of(pod), controller_of(moved)
    return (
        controller is not None
        and owner is not None
        and (pod.metadata.namespace, controller.uid) == (moved.metadata.namespace, owner.uid)
    )


def _was_made_after(pod: Pod, time_s: float) -> bool:
    """Whether a pod was made after a time in seconds since 1970, or in the same second."""
    made = pod.metadata.creationTimestamp
    return made is not None and datetime.fromisoformat(made).timestamp() >= int(time_s)
