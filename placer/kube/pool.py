"""The placer's side of the pool: reservation pods become nodes' parts of the pool, and releases are granted.

What always holds: a node's part of the pool follows from the objects that the watches show, at once. A release is
granted by the placer that leads alone, only while no pod is booked on the GPU, assumed pods included, and only over
the version of the reservation that the watch showed. From the moment at which a release is asked until it is taken
back, no placer puts a pod there. So a granted release stays true whatever placer leads next.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NoReturn, Protocol

from placer.core.ledger import Ledger
from placer.core.pool import Pool, PoolPart
from placer.scheduler.cache.cache import Cache
from plimsoll.events import PoolChange
from plimsoll.ids import GpuUuid, NodeName, PodUid
from plimsoll.kube.models import Pod
from plimsoll.kube.transport import ApiError, ConflictError, NotFoundError, PatchKind, Transport
from plimsoll.part.backoff import Pauses
from plimsoll.part.ending import heed_cancellation
from plimsoll.part.log import get_logger
from plimsoll.pool import DEVICE, RELEASE, Release, Reservation, is_dedicated, is_reservation, reservation_of

log = get_logger()

OFF: Final = ""
"""In place of a namespace: there is no pool."""


class PoolEvents(Protocol):
    """Takes events for `plimsoll.v1.pool.<what>`; the methods return at once."""

    def acquired(self, change: PoolChange) -> None:
        """Queue an event for a GPU that joined the pool."""

    def released(self, change: PoolChange) -> None:
        """Queue an event for a GPU that was given back."""

    def lost(self, change: PoolChange) -> None:
        """Queue an event for a GPU whose reservation vanished without a release."""


@dataclass(slots=True)
class PoolWatch:
    """Keeps the pool of a cluster up to date, and grants releases while `run` runs.

    Attributes:
        namespace: the namespace of reservation pods, or `OFF`.
        pool: the nodes' parts, which this fills.
        cache: the nodes and the load of each.
        ledger: the bookings of all pods.
        transport: for grants; its writes happen only while this placer leads.
        leads: set once this placer decides.
        bus: takes the events.
    """

    namespace: str
    pool: Pool
    cache: Cache
    ledger: Ledger
    transport: Transport
    leads: asyncio.Event
    bus: PoolEvents
    _reservations: defaultdict[NodeName, dict[PodUid, Reservation]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    _nodes: dict[PodUid, NodeName] = field(default_factory=dict)  # where `_reservations` has each
    _asked: dict[PodUid, Reservation] = field(default_factory=dict)  # whose release is to be granted
    _work: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        if self.namespace == OFF:
            return
        self.pool.is_on = True
        self.cache.on_gain(lambda node, _: self._refresh(node))
        self.cache.on_filled(self._refresh)
        self.ledger.on_change(lambda *_: self._work.set() if self._asked else None)

    def put(self, pod: Pod) -> None:
        """Take a pod that the watch shows; any pod. A pod that lost the label is no longer a reservation."""
        if self.namespace == OFF:
            return
        if not is_reservation(pod, self.namespace):
            self.remove(pod)
            return
        found = reservation_of(pod)
        if self._nodes.get(found.uid, found.node) != found.node:
            self.remove(pod)
        self._take(found)

    def remove(self, pod: Pod) -> None:
        """Take a pod that is gone; any pod."""
        uid = PodUid(pod.metadata.uid)
        node = self._nodes.pop(uid, None)
        if node is None:
            return
        known = self._reservations[node].pop(uid)
        self._asked.pop(uid, None)
        if not self._reservations[node]:
            del self._reservations[node]
        self._refresh(node)
        self._publish_end(known)

    async def run(self) -> NoReturn:
        """Grant releases until cancelled."""
        await self.leads.wait()
        pauses = Pauses()
        while True:
            heed_cancellation()
            self._work.clear()
            try:
                for reservation in tuple(self._asked.values()):
                    await self._grant(reservation)
            except ApiError as error:
                log.warning("a release waits for the API server", error=str(error))
                await asyncio.sleep(pauses.next_s())  # the API server is away
            else:
                pauses.reset()
                await self._work.wait()

    def _take(self, found: Reservation) -> None:
        known = self._reservations[found.node].get(found.uid)
        self._reservations[found.node][found.uid] = found
        self._nodes[found.uid] = found.node
        self._refresh(found.node)
        self._asked.pop(found.uid, None)
        if found.release is Release.ASKED and found.holds:
            self._asked[found.uid] = found
            self._work.set()
        if found.holds and (known is None or not known.holds or known.gpu != found.gpu):
            self._publish(self.bus.acquired, found)
        if known is not None and known.holds and (not found.holds or known.gpu != found.gpu):
            self._publish_end(known)

    def _refresh(self, node: NodeName | None) -> None:
        if node is None:
            return
        offer = self.cache.node(node)
        there = self._reservations.get(node, {}).values()
        if offer is None:
            self.pool.forget(node)
        elif is_dedicated(offer.node):
            self.pool.put(node, PoolPart(None))
        else:
            gpus = frozenset(GpuUuid(one.gpu or "") for one in there if one.in_pool)
            # A reservation without a node is counted by the device that it will take.
            joining = sum(one.joining and one.bound for one in there)
            self.pool.put(node, PoolPart(gpus, self.cache.free(node, DEVICE) + joining))

    async def _grant(self, reservation: Reservation) -> None:
        """Grant a release, unless a pod is booked on the GPU."""
        if self.ledger.on_gpu(reservation.node, GpuUuid(reservation.gpu or "")):
            return
        path = f"/api/v1/namespaces/{self.namespace}/pods/{reservation.name}"
        body = {
            "metadata": {
                "uid": reservation.uid,
                "resourceVersion": reservation.version,
                "annotations": {RELEASE: Release.GRANTED.value},
            }
        }
        try:
            await self.transport.patch(path, body, PatchKind.MERGE)
        except (ConflictError, NotFoundError):
            return  # the watch will show what changed
        log.info("release granted", node=reservation.node, gpu=reservation.gpu)

    def _publish_end(self, known: Reservation) -> None:
        if known.holds:
            self._publish(self.bus.released if known.release is Release.GRANTED else self.bus.lost, known)

    def _publish(self, event: Callable[[PoolChange], None], reservation: Reservation) -> None:
        """Publish a change of the pool. Placers that follow publish nothing."""
        if self.leads.is_set() and reservation.gpu is not None:
            pods = tuple(sorted(one.pod for one in self.ledger.on_gpu(reservation.node, reservation.gpu)))
            event(
                PoolChange(node=reservation.node, gpu=reservation.gpu, reservation=reservation.uid, pods=pods)
            )
