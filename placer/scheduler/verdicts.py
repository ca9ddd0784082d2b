"""The verdicts on nodes for pods of one signature: the nodes without a place with their reasons, and the others.

Pods of one signature, with volumes and an expected memory that are alike, get equal answers. So a second such pod,
and each retry, only judges the nodes that changed since. What always holds: a change of a node takes its verdict
back. A node without a verdict may have a place.
"""

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from heapq import nsmallest

from placer.core.changes import Changes
from placer.core.ranking import Ranking, ReadCount
from placer.core.reasons import Reason, summary_of
from placer.core.refusal import Refusal
from plimsoll.ids import NodeName
from plimsoll.pool import MOST_NAMED


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why no node will do.

    Attributes:
        text: for people, see `placer.core.reasons.summary`.
        reasons: all reasons in it.
        topics: the changes of rules about pods that may end it; None: any of them may.
        is_of_pod: no node is the reason, so that no change of a node can help.
        may_pass: the refusal may not last, although no change is announced.
    """

    text: str
    reasons: frozenset[str]
    topics: frozenset[Hashable] | None = None
    is_of_pod: bool = False
    may_pass: bool = False


@dataclass(slots=True)
class Verdicts:
    """The verdicts for pods of one signature.

    Attributes:
        fits: the changes of nodes apart from their GPUs.
        rooms: the changes of the room on GPUs.
        reasons: the nodes without a place, each with its reasons.
        fitting: the nodes that had a place when they were judged.
        unseen: the nodes that have yet to be judged; all others have verdicts once `covers_all`.
        covers_all: whether every node of the cluster has been listed once.
        alike: by reasons, the number of nodes that have exactly these.
    """

    fits: Changes
    rooms: Changes
    reasons: dict[NodeName, tuple[str, ...]] = field(default_factory=dict)
    fitting: dict[NodeName, None] = field(default_factory=dict)
    unseen: dict[NodeName, None] = field(default_factory=dict)
    covers_all: bool = False
    alike: Counter[tuple[str, ...]] = field(default_factory=Counter)
    _counts: Counter[str] = field(default_factory=Counter)
    # The most free memory of each node that is refused for its GPUs.
    _free_bytes: dict[NodeName, int | None] = field(default_factory=dict)
    _most_free: Ranking[tuple[int, NodeName]] = field(default_factory=lambda: Ranking(ReadCount()))
    _acquiring: dict[NodeName, None] = field(default_factory=dict)
    # Equal reasons are one object.
    _same: dict[tuple[str, ...], tuple[str, ...]] = field(default_factory=dict)
    _fits_serial: int = field(init=False)
    _rooms_serial: int = field(init=False)

    def __post_init__(self) -> None:
        self._fits_serial, self._rooms_serial = self.fits.serial, self.rooms.serial

    def cover(self, nodes: Iterable[NodeName]) -> None:
        """List all nodes of the cluster, if that was not done before."""
        if not self.covers_all:
            judged = (self.reasons, self.fitting)
            self.unseen.update((node, None) for node in nodes if not any(node in one for one in judged))
            self.covers_all = True

    def catch_up(self) -> None:
        """Take back the verdicts on nodes that changed."""
        if not (
            self.fits.reaches_back_to(self._fits_serial) and self.rooms.reaches_back_to(self._rooms_serial)
        ):
            self._forget_all()
        for node in self.fits.since(self._fits_serial):
            self._take_back(node)
        for node in self.rooms.since(self._rooms_serial):
            if node in self._free_bytes or node in self.fitting:
                self._take_back(node)
        self._fits_serial, self._rooms_serial = self.fits.serial, self.rooms.serial

    def refuse_fit(self, node: NodeName, reasons: tuple[str, ...]) -> None:
        """Note that a node is unfit apart from its GPUs; a change of its GPUs does not help."""
        self._drop(node)
        self.reasons[node] = self._same.setdefault(reasons, reasons)
        self.alike[reasons] += 1
        self._counts.update(reasons)

    def refuse_gpus(self, node: NodeName, refusal: Refusal) -> None:
        """Note that the GPUs of a node have no place."""
        reasons = refusal.reasons[node]
        self.refuse_fit(node, reasons)
        self._free_bytes[node] = refusal.best_free_bytes
        if refusal.best_free_bytes is not None and Reason.GPU_MEMORY.value in reasons:
            self._most_free.add((refusal.best_free_bytes, node))
        if Reason.ACQUIRING.value in reasons:
            self._acquiring[node] = None

    def accept(self, node: NodeName) -> None:
        """Note that a node has a place."""
        self._drop(node)
        self.fitting[node] = None

    def leave_out(self, node: NodeName) -> None:
        """Note that a node left the cluster."""
        self._drop(node)

    def open_nodes(self, most: int) -> list[NodeName] | None:
        """All nodes that may have a place; None if they are more than `most`, or not all nodes are listed yet."""
        if not self.covers_all or len(self.fitting) + len(self.unseen) > most:
            return None
        return [*self.fitting, *self.unseen]

    def some_open_nodes(self, most: int) -> list[NodeName]:
        """Nodes that may have a place, at most this many, those that had one first."""
        found: list[NodeName] = []
        for nodes in (self.fitting, self.unseen):
            for node in nodes:
                if len(found) >= most:
                    return found
                found.append(node)
        return found

    def explanation(self, total: int) -> Explanation:
        """The reasons of all nodes without a place; `total` counts all nodes of the cluster."""
        greatest = self._most_free.greatest()
        most_free = (greatest[1], greatest[0]) if greatest is not None else None
        acquiring = nsmallest(MOST_NAMED, self._acquiring)
        return Explanation(summary_of(total, self._counts, most_free, acquiring), frozenset(self._counts))

    def _take_back(self, node: NodeName) -> None:
        was_judged = node in self.reasons or node in self.fitting
        self._drop(node)
        if self.covers_all or was_judged:
            self.unseen[node] = None

    def _drop(self, node: NodeName) -> None:
        self.unseen.pop(node, None)
        self.fitting.pop(node, None)
        reasons = self.reasons.pop(node, None)
        if reasons is None:
            return
        self.alike[reasons] -= 1
        if not self.alike[reasons]:
            del self.alike[reasons]
        self._counts.subtract(reasons)
        for reason in reasons:
            if not self._counts[reason]:
                del self._counts[reason]
        self._acquiring.pop(node, None)
        free_bytes = self._free_bytes.pop(node, None)
        if free_bytes is not None and Reason.GPU_MEMORY.value in reasons:
            self._most_free.remove((free_bytes, node))

    def _forget_all(self) -> None:
        for node in list(self.reasons):
            self._drop(node)
        self.fitting.clear()
        self.unseen.clear()
        self.covers_all = False
