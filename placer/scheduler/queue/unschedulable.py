"""The pods that fit nowhere, by signature, and the probes that a change of a node asks for.

Pods of one signature share a diagnosis, and wait together. What always holds: a signature that an event concerns is
either probed on that node, or tried again. Pure.
"""

import bisect
import heapq
from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from placer.core.reasons import Reason
from placer.scheduler.queue.queued_pod import Diagnosis, QueuedPodInfo, Rank, SignatureClass
from placer.scheduler.queue.queueing_hints import Cause, ClusterEvent
from plimsoll.ids import NodeName, PodUid

PROBES_AT_MOST: Final = 16
"""Nodes on which a signature may have to be probed. With more, it is tried: one decision costs less then."""


@dataclass(frozen=True, slots=True)
class Probe:
    """Work: find out whether a node could take this pod now, the first of its signature."""

    pod: QueuedPodInfo
    node: NodeName
    alike: SignatureClass


class UnschedulablePods:
    """The signatures that have a pod which fits nowhere, or one that is tried for the others.

    Args:
        pods: all pods of the queue.
    """

    def __init__(self, pods: Mapping[PodUid, QueuedPodInfo]) -> None:
        self._pods = pods
        self._classes: dict[Hashable, SignatureClass] = {}
        # Those that are refused, by the bytes or the percentage that they request.
        self._by_cause: dict[Cause, list[tuple[int, int, SignatureClass]]] = {cause: [] for cause in Cause}
        # Heaps, the first rank first; they may hold outdated items.
        self._probes: dict[NodeName, list[tuple[Rank, int, SignatureClass]]] = {}
        self._planned = 0
        self._refused = 0
        self._preemptors: Counter[int] = Counter()  # the refused that may preempt, by priority

    def __len__(self) -> int:
        """The number of signatures that are refused: while it is 0, no change of the cluster matters."""
        return self._refused

    def __iter__(self) -> Iterator[SignatureClass]:
        return iter(self._classes.values())

    @property
    def counts_by_cause(self) -> dict[Cause, int]:
        """The number of waiting pods with each cause; a pod may have several."""
        return {cause: sum(one.waiting for _, _, one in items) for cause, items in self._by_cause.items()}

    @property
    def highest_preemptor(self) -> int | None:
        """The highest priority of refused pods that may preempt; None if there are none."""
        return max(self._preemptors, default=None)

    @property
    def has_probes(self) -> bool:
        """Whether a signature is to be probed on a node."""
        return self._planned > 0

    def find(self, signature: Hashable) -> SignatureClass | None:
        """The pods of a signature; None if there are none."""
        return self._classes.get(signature)

    def add(self, signature: Hashable, number: int) -> SignatureClass:
        """The pods of a signature; `number` is that of a new one."""
        return self._classes.get(signature) or self._classes.setdefault(
            signature, SignatureClass(signature, number, self._pods)
        )

    def drop(self, alike: SignatureClass) -> None:
        """Drop a signature that has no pod any more."""
        self.leave(alike)
        del self._classes[alike.signature]

    def refuse(self, alike: SignatureClass, diagnosis: Diagnosis) -> None:
        """Put a diagnosis in force; it knows every change so far."""
        self.leave(alike)
        alike.is_refused, alike.backs_off, alike.diagnosis = True, False, diagnosis
        self._refused += 1
        if diagnosis.priority is not None:
            self._preemptors[diagnosis.priority] += 1
        self._index(alike, diagnosis.causes)

    def renew(self, alike: SignatureClass, diagnosis: Diagnosis) -> None:
        """Replace the diagnosis of a signature by one that holds now; one without stays without."""
        if alike.is_refused:
            self.refuse(alike, diagnosis)

    def leave(self, alike: SignatureClass) -> None:
        """End a signature's diagnosis, if one is in force."""
        if not alike.is_refused:
            return
        alike.is_refused = alike.backs_off = False
        self._refused -= 1
        priority = alike.diagnosis.priority
        if priority is not None:
            self._preemptors[priority] -= 1
            self._preemptors += Counter()  # drops those that are 0
        self._planned -= len(alike.unprobed)
        alike.unprobed.clear()
        for cause in alike.diagnosis.causes:
            items = self._by_cause[cause]
            del items[bisect.bisect_left(items, (alike.diagnosis.largest_request, alike.number))]

    def with_cause(self, causes: Cause, topics: Collection[Hashable] | None = None) -> list[SignatureClass]:
        """The refused that have one of these causes, and that a change of these topics may help; None: of any."""
        found = {one: None for cause in causes for _, _, one in self._by_cause[cause]}
        if topics is None:
            return list(found)
        return [
            one
            for one in found
            if one.diagnosis.topics is None or not one.diagnosis.topics.isdisjoint(topics)
        ]

    def plan_probes(self, node: NodeName, event: ClusterEvent) -> list[SignatureClass]:
        """Plan the probes after a change of a node.

        Returns:
            The signatures to be tried: those that have too many probes, and those that request more than new GPUs
            have and whose diagnosis does not say so yet. Pods of the second sort need no probe, and the next new GPU
            does not bring them back.
        """
        tried = self._outdated(event)
        for alike in tuple(self._concerned(event)):
            if node in alike.unprobed:
                continue
            if len(alike.unprobed) == PROBES_AT_MOST:
                tried.append(alike)
                continue
            alike.unprobed.add(node)
            self._planned += 1
            self._plan(alike, node)
        return tried

    def next_probe(self) -> Probe | None:
        """The probe to do next: those of the node that changed first, the signature with the first rank first."""
        while self._probes:
            node, items = next(iter(self._probes.items()))
            while items:
                rank, _, alike = items[0]
                is_planned = node in alike.unprobed
                if is_planned and rank == alike.first.rank:
                    return Probe(alike.first, node, alike)
                heapq.heappop(items)
                if is_planned:  # its first pod is gone; no pod joins a signature that is to be probed
                    self._plan(alike, node)
            del self._probes[node]
        return None

    def probed(self, probe: Probe, causes: Cause) -> bool:
        """Note a probe and the causes that it found. Returns False if the probe is not asked for any more."""
        alike = probe.alike
        if probe.node not in alike.unprobed:
            return False
        alike.unprobed.discard(probe.node)
        self._planned -= 1
        if Cause.RULES in causes:  # maybe by rules that came after the refusal
            alike.diagnosis = replace(alike.diagnosis, topics=None)
        more = causes & ~alike.diagnosis.causes
        if more:
            alike.diagnosis = replace(alike.diagnosis, causes=alike.diagnosis.causes | causes)
            self._index(alike, more)
        return True

    def _index(self, alike: SignatureClass, causes: Cause) -> None:
        for cause in causes:
            item = (alike.diagnosis.largest_request, alike.number, alike)
            bisect.insort(self._by_cause[cause], item)

    def _plan(self, alike: SignatureClass, node: NodeName) -> None:
        heapq.heappush(self._probes.setdefault(node, []), (alike.first.rank, alike.number, alike))

    def _outdated(self, event: ClusterEvent) -> list[SignatureClass]:
        """Those that new GPUs are too small for, although no diagnosis of theirs has named memory so far."""
        if Cause.GPUS not in event.causes or not event.best_bytes:
            return []
        items = self._by_cause[Cause.GPUS]
        larger = items[bisect.bisect_left(items, (event.best_bytes + 1,)) :]
        return [one for _, _, one in larger if Reason.GPU_MEMORY.value not in one.diagnosis.reasons]

    def _concerned(self, event: ClusterEvent) -> Iterator[SignatureClass]:
        for cause in event.causes:
            items = self._by_cause[cause]
            above, up_to = -1, event.best_bytes
            if cause is Cause.MEMORY:
                above, up_to = event.above_bytes, min(event.best_bytes, event.up_to_bytes)
            elif cause is Cause.PERCENTAGE:
                above, up_to = event.above_pct, event.up_to_pct if event.best_bytes else 0
            start = bisect.bisect_left(items, (above + 1,))
            for _, _, alike in items[start : bisect.bisect_left(items, (up_to + 1,))]:
                yield alike
            if event.above_priority is not None:
                for _, _, alike in items[: bisect.bisect_left(items, (event.preempt_bytes + 1,))]:
                    priority = alike.diagnosis.priority
                    if priority is not None and priority > event.above_priority:
                        yield alike
