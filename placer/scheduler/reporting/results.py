"""Reports the result of each attempt to place a pod: to people by events, conditions and the log, and on the bus.

What always holds: a method returns at once, and a refusal of a pod that is bound or gone is not reported.
"""

from dataclasses import dataclass
from typing import Protocol

from placer.core.booking import Booking
from placer.core.plan import Plan
from placer.publisher import placement
from placer.scheduler.queue.queue import Queue
from placer.scheduler.reporting.condition import UNSCHEDULABLE
from placer.scheduler.reporting.pod_events import PodNews, cut
from placer.scheduler.reporting.record import Recorder
from plimsoll.contract import from_limit_range
from plimsoll.events import Placement
from plimsoll.ids import NodeName, PodUid
from plimsoll.kube.models import Pod
from plimsoll.part.log import get_logger


class PlacementEvents(Protocol):
    """Takes placements for `plimsoll.v1.pod.<what>`; the methods return at once."""

    def placed(self, placement: Placement) -> None:
        """Queue an event for a pod that was bound."""

    def unplaceable(self, placement: Placement) -> None:
        """Queue an event for a pod without a fit node; called once for each new reason."""

    def foreign(self, placement: Placement) -> None:
        """Queue an event for a pod that has a node, requests a GPU, and has no readable decision of the placer."""

    def preempted(self, placement: Placement) -> None:
        """Queue an event for a pod that was deleted to make room for another one."""

    def relocated(self, placement: Placement) -> None:
        """Queue an event for a pod that was evicted to be moved."""


@dataclass(frozen=True, slots=True)
class Results:
    """Reports results.

    Attributes:
        queue: the pods without a node.
        recorder: writes events and conditions.
        bus: takes the events of placements.
    """

    queue: Queue
    recorder: Recorder
    bus: PlacementEvents

    def placed(self, pod: Pod, placed: Plan) -> None:
        """Report that a pod was bound."""
        node = placed.booking.node
        get_logger().info("placed", pod=pod.full_name, node=node, gpus=placed.gpus, score=placed.score)
        more = "".join(f". {text}" for text in (placed.expected, _given(pod)) if text)
        note = cut(f"Successfully assigned {pod.full_name} to {node}{more}")
        self.recorder.record(PodNews(pod, "Scheduled", note, None))
        self.bus.placed(placement(pod.metadata, placed))

    def resized(self, pod: Pod, note: str) -> None:
        """Report that a pod was resized, by whom, and how."""
        get_logger().info("resized", pod=pod.full_name, note=note)
        self.recorder.record(PodNews(pod, "Resized", cut(note), None))

    def preempted(self, victim: Pod, preemptor: Pod, node: NodeName) -> None:
        """Report that a pod was deleted to make room for another one."""
        get_logger().info("preempted", pod=victim.full_name, node=node, preemptor=preemptor.full_name)
        note = f"Preempted by pod {preemptor.metadata.uid} on node {node}"
        self.recorder.record(PodNews(victim, "Preempted", note, None, preemptor))
        meta = victim.metadata
        self.bus.preempted(
            Placement(
                namespace=meta.namespace,
                name=meta.name,
                pod=PodUid(meta.uid),
                node=node,
                reason=f"preempted by pod {preemptor.full_name} ({preemptor.metadata.uid})",
            )
        )

    def nomination_given_up(self, pod: Pod, node: NodeName, stuck: list[Pod]) -> None:
        """Report that a waiting pod does not wait for the room of pods any longer, because they do not end."""
        names = ", ".join(one.full_name for one in stuck)
        note = cut(
            f"Its room on {node} is not waited for any longer, as pods there should have ended long ago: {names}. "
            "Look at their finalizers and at the node."
        )
        self.recorder.record(PodNews(pod, "NominationGivenUp", note, None))

    def relocation_planned(self, pod: Pod, plan: str) -> None:
        """Report which pods would move, or move now, to make room for a waiting one."""
        self.recorder.record(PodNews(pod, "RelocationPlanned", cut(plan), None))

    def relocated(
        self, moved: Pod, pod: Pod | None, node: NodeName, to: NodeName | None, keep_s: float
    ) -> None:
        """Report that a pod was evicted to be moved.

        Args:
            moved: the pod.
            pod: the waiting pod for which it moves; None where it moves to free a GPU.
            node: the node that it leaves.
            to: the node on which room is kept for its replacement; None if that room has been given up.
            keep_s: for how long at most once the pod has ended, in seconds.
        """
        purpose = (
            f"make room for pod {pod.full_name} ({pod.metadata.uid})"
            if pod is not None
            else "free a whole GPU"
        )
        reason = f"moved to {purpose}"
        get_logger().info("relocated", pod=moved.full_name, node=node, to=to, why=reason)
        until = f"until {keep_s:g} s after it has ended"
        room = f"Room for its replacement is kept on {to} {until}." if to is not None else ""
        note = cut(f"Evicted from {node}: {reason}. {room}".rstrip())
        self.recorder.record(PodNews(moved, "Relocated", note, None, pod))
        meta = moved.metadata
        uid = PodUid(meta.uid)
        self.bus.relocated(
            Placement(namespace=meta.namespace, name=meta.name, pod=uid, node=node, to=to, reason=reason)
        )

    def doubted(self, booking: Booking, *, decides: bool) -> None:
        """Report that a bound pod counts otherwise than its decision says.

        Args:
            booking: how the pod counts now.
            decides: this placer is certainly the one that places.
        """
        doubt, log = booking.doubt, get_logger()
        assert doubt is not None, "only a booking in doubt is reported"
        name = f"{doubt.namespace}/{doubt.name}"
        if not doubt.foreign and not decides:
            # The decision may be that of a placer that has taken the lease over. Then this placer ends soon.
            log.info("pod placed or changed by another", pod=name, node=booking.node)
            return
        log.error("pod in doubt", pod=name, node=booking.node, reason=doubt.reason)
        if doubt.foreign:
            self.bus.foreign(
                Placement(
                    namespace=doubt.namespace,
                    name=doubt.name,
                    pod=booking.pod,
                    node=booking.node,
                    reason=doubt.reason,
                )
            )

    def held_by_nothing(self, pod: Pod, booking: Booking) -> None:
        """Report that nothing holds a pod that somebody else bound; nothing to report of any other pod."""
        if booking.doubt is not None and booking.doubt.unheld:
            self.recorder.record(PodNews(pod, "HeldByNothing", cut(booking.doubt.reason), None))

    def bound_by_rival(self, pod: Pod) -> None:
        """Report that another placer bound a pod that waited for this one."""
        get_logger().error(
            "another placer bound a pod that waited here, so both may promise the same room",
            pod=pod.full_name,
            node=pod.spec.nodeName,
            remedy="give all placers of the cluster the same PLIMSOLL_LEASE_NAMESPACE; `plimsoll doctor` names the "
            "other Lease",
        )

    def refused(self, pod: Pod, note: str, reason: str = UNSCHEDULABLE) -> None:
        """Report that a pod was not placed; `reason` is that of its condition."""
        uid = PodUid(pod.metadata.uid)
        waiting = self.queue.get(uid)
        if waiting is None:
            return  # bound or gone meanwhile: the refusal is outdated
        given = _given(pod)
        note = cut(f"{note} {given}." if given else note)
        # The pod as it is now carries the condition that was written last.
        self.recorder.record(PodNews(waiting.pod, "FailedScheduling", note, reason))
        if reason != UNSCHEDULABLE or waiting.refused_for == note:
            return
        waiting.refused_for = note
        get_logger().info("not placed", pod=pod.full_name, why=note)
        meta = pod.metadata
        self.bus.unplaceable(Placement(namespace=meta.namespace, name=meta.name, pod=uid, reason=note))


def _given(pod: Pod) -> str:
    """The resources that the pod did not ask for itself, as a sentence."""
    text = from_limit_range(pod)
    return text and text[0].upper() + text[1:]
