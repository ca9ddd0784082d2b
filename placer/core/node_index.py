"""An index for policies whose score depends on pod and node: the bounds of all nodes, kept for each pod type.

What always holds: a search computes the bounds of the nodes that changed since the last search for a pod of its
type, and of no others. Between two pods of one type these are few; for a new type they are all nodes at once, so a
table computes them together.
"""

from collections import OrderedDict
from collections.abc import Collection, Hashable, Iterator
from math import inf
from typing import Final, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from placer.core.index import Surroundings
from placer.core.policy_context import Request, Rooms
from plimsoll.ids import GpuUuid, NodeName

POD_TYPES: Final = 512
"""The pod types whose bounds are kept, the last used: 4 MB with 1000 nodes. A trace has 150 to 460."""

NO_PLACE: Final = -inf
"""The bound of a node on which no plan succeeds."""

T = TypeVar("T", bound=np.generic)

Slots = NDArray[np.intp]
Bounds = NDArray[np.float64]


class Table(Protocol):
    """All nodes as one policy reads them. Each has a slot, a number from 0 on."""

    def put(self, slot: int, node: NodeName, rooms: Rooms) -> None:
        """Read a node again: its rooms or its spare CPU changed. A slot may pass to another node."""

    def pod_type(self, request: Request) -> Hashable:
        """Equal for pods that have equal bounds everywhere, until the nodes change."""

    def version(self) -> Hashable:
        """Differs from before if all bounds are void: they depend on something besides the nodes that changed."""

    def bounds(self, request: Request, slots: Slots) -> Bounds:
        """For each of these nodes: no plan there has a higher score; `NO_PLACE` if none succeeds.

        The index leaves out nodes without the CPU of the pod, so a table need not.
        """


class _Known:
    """The bounds for a pod type, by slot, and the serial number of the last change that is in them."""

    __slots__ = ("bounds", "serial")

    def __init__(self, slots: int) -> None:
        self.bounds: Bounds = np.full(slots, NO_PLACE)
        self.serial = 0


class NodeIndex:
    """All nodes, by the bounds that a table gives: a `placer.core.index.Index`."""

    def __init__(self, table: Table, around: Surroundings) -> None:
        self._table = table
        self._reads = around.reads
        self._spare_cpu = around.ledger.spare_cpu
        self._slots: dict[NodeName, int] = {}
        self._free: list[int] = []
        self._names: list[NodeName] = []  # by slot; a free slot keeps its last name
        # By slot: the serial number of its last change.
        self._changed: NDArray[np.int64] = np.zeros(0, np.int64)
        self._is_used: NDArray[np.bool_] = np.zeros(0, np.bool_)
        self._cpu_milli: NDArray[np.float64] = np.zeros(0)  # by slot: the spare CPU; infinite where unknown
        self._serial = 0
        self._known: OrderedDict[Hashable, _Known] = OrderedDict()
        self._version: Hashable = None
        self._places: NDArray[np.int64] | None = None  # by slot: the place of its name among all names

    def move(self, node: NodeName, before: Rooms, after: Rooms, changed: Collection[GpuUuid]) -> None:  # noqa: ARG002
        """Read a node again before the next search."""
        slot = self._slots.get(node)
        if slot is None:
            if not after:
                return
            slot = self._new_slot(node)
        self._serial += 1
        self._changed[slot] = self._serial
        self._is_used[slot] = bool(after)
        spare = self._spare_cpu.on(node)
        self._cpu_milli[slot] = np.inf if spare is None else spare
        self._table.put(slot, node, after)
        if not after:
            del self._slots[node]
            self._free.append(slot)

    def best_first(self, request: Request) -> Iterator[tuple[float, NodeName]]:
        """The nodes with the pod's CPU and a place, the highest bound first."""
        left = self._bounds(request).copy()
        left[self._cpu_milli[: len(left)] < request.cpu_milli] = NO_PLACE
        while left.size and (best := left.max()) > NO_PLACE:
            slots = np.flatnonzero(left == best)
            for slot in slots[np.argsort(-self._by_name[slots])] if len(slots) > 1 else slots:
                yield float(best), self._names[slot]
            left[slots] = NO_PLACE

    def _bounds(self, request: Request) -> Bounds:
        version = self._table.version()
        if version != self._version:
            self._version = version
            self._known.clear()
        pod_type = self._table.pod_type(request)
        known = self._known.pop(pod_type, None) or _Known(len(self._changed))
        self._known[pod_type] = known
        if len(self._known) > POD_TYPES:
            self._known.popitem(last=False)
        if len(known.bounds) < len(self._changed):
            known.bounds = _longer(known.bounds, len(self._changed), NO_PLACE)
        outdated = np.flatnonzero(self._changed > known.serial)
        used = outdated[self._is_used[outdated]]
        known.bounds[outdated] = NO_PLACE
        if len(used):
            known.bounds[used] = self._table.bounds(request, used)
        known.serial = self._serial
        self._reads.keys += len(used)
        return known.bounds

    def _new_slot(self, node: NodeName) -> int:
        self._places = None
        if self._free:
            slot = self._free.pop()
            self._names[slot] = node
        else:
            slot = len(self._names)
            self._names.append(node)
            if slot >= len(self._changed):
                size = max(2 * slot, 64)
                self._changed = _longer(self._changed, size, 0)
                self._is_used = _longer(self._is_used, size, 0)
                self._cpu_milli = _longer(self._cpu_milli, size, 0)
        self._slots[node] = slot
        return slot

    @property
    def _by_name(self) -> NDArray[np.int64]:
        if self._places is None:
            self._places = np.zeros(len(self._changed), np.int64)
            for place, slot in enumerate(sorted(range(len(self._names)), key=self._names.__getitem__)):
                self._places[slot] = place
        return self._places


def _longer(array: NDArray[T], size: int, filling: float) -> NDArray[T]:
    longer = np.full(size, filling, array.dtype)
    longer[: len(array)] = array
    return longer
