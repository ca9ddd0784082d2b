"""Compares the ledger with the API server now and then: bytes and shares by pod and GPU, by an arithmetic of its own.

What always holds: a difference counts only if a second list shows it too, after the watch has had time to show it.
Binds and resizes under way are no drift, nor are pods in doubt, which count more than is stated on purpose. The list
comes in small pages, so the event loop is never held up for long.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NoReturn

import msgspec

from placer.core.booking import Grant
from placer.core.ledger import Ledger
from placer.metrics import Metrics
from placer.scheduler.cache.cache import Cache
from plimsoll.contract import asks_gpu
from plimsoll.decision import GpuGrant, decision_of
from plimsoll.ids import GpuUuid, NodeName, PodUid
from plimsoll.kube.models import TERMINAL_PHASES, Named, Page, Pod, decode_pod
from plimsoll.kube.pages import pieces
from plimsoll.kube.transport import ApiError, Query, Transport
from plimsoll.lifespan import Lifespan, peak
from plimsoll.part.errors import InputError
from plimsoll.part.log import get_logger

PAGE_PODS: Final = 100
"""Pods of one page: they decode in about 2 ms."""
SETTLE_S: Final = 40.0
"""The time between the two lists: more than the longest pause of a reflector after a failed watch (30 s)."""
NAMED_PODS: Final = 20
"""Pods that the log names."""

Promises = dict[tuple[NodeName, GpuUuid], tuple[int, int]]
"""Bytes and percent of compute time by GPU; without GPUs whose bytes and percent are 0."""


@dataclass(frozen=True, slots=True)
class Drift:
    """A pod that the ledger counts otherwise than the API server states; `pod` is None if it has no node any more."""

    name: str
    pod: Pod | None
    bytes_apart: int


@dataclass(slots=True)
class CacheComparer:
    """Compares the ledger with the API server while `run` runs.

    Attributes:
        every_s: the pause between two comparisons, in seconds.
    """

    transport: Transport
    cache: Cache
    ledger: Ledger
    metrics: Metrics
    every_s: float

    async def run(self) -> NoReturn:
        """Compare now and then, until cancelled. While the API server is away, comparisons are left out."""
        while True:
            await asyncio.sleep(self.every_s)
            try:
                await self.compare()
            except (ApiError, msgspec.MsgspecError) as error:
                get_logger().warning("ledger not compared", error=str(error))

    async def compare(self) -> None:
        """Compare once: set the metrics, name the pods that differ in the log, and count them as the API server does.

        Raises:
            ApiError: the API server does not answer.
            msgspec.MsgspecError: its answer is no list of pods.
        """
        drifts = await self.apart()
        if drifts:
            await asyncio.sleep(SETTLE_S)
            still = await self.apart()
            drifts = {uid: drift for uid, drift in still.items() if uid in drifts}
        self.metrics.drift.bytes.set(sum(drift.bytes_apart for drift in drifts.values()))
        self.metrics.drift.pods.set(len(drifts))
        if drifts:
            names = [drift.name for drift in drifts.values()][:NAMED_PODS]
            get_logger().error("ledger drifted from the API server", pods=names, count=len(drifts))
        for uid, drift in drifts.items():
            self._mend(uid, drift.pod)

    async def apart(self) -> dict[PodUid, Drift]:
        """The pods that differ in a fresh list, also those that differ only until the watch shows them.

        Raises:
            ApiError, msgspec.MsgspecError: as `compare`.
        """
        found: dict[PodUid, Drift] = {}
        # Local nodes share the ledger, and the API server does not know their pods.
        absent = {booking.pod for booking in self.ledger.bookings() if self.cache.has_node(booking.node)}
        more = ""
        while True:
            query: Query = (("limit", str(PAGE_PODS)), *((("continue", more),) if more else ()))
            page = msgspec.json.decode(await self.transport.get("/api/v1/pods", query), type=Page)
            for piece in pieces(page.items or ()):
                for document in piece:
                    self._read(document, absent, found)
                await asyncio.sleep(0)  # other tasks run between two pieces
            more = page.metadata.more
            if not more:
                break
        for uid in absent:
            self._compare(uid, None, found)
        return found

    def _read(self, document: msgspec.Raw, absent: set[PodUid], found: dict[PodUid, Drift]) -> None:
        uid = PodUid(msgspec.json.decode(document, type=Named).metadata.uid)
        try:
            pod = decode_pod(bytes(document))
        except msgspec.MsgspecError:
            absent.discard(uid)  # the reflector names it; its booking stays
            return
        if pod.spec.nodeName and pod.status.phase not in TERMINAL_PHASES:
            absent.discard(uid)
            self._compare(uid, pod, found)

    def _compare(self, uid: PodUid, pod: Pod | None, found: dict[PodUid, Drift]) -> None:
        if self.cache.is_assumed(uid) or (pod is not None and not self.cache.bookings.is_settled(uid)):
            return
        stated, counted = _stated(pod), self._counted(uid)
        if stated != counted or self._labels_differ(uid, pod):
            keys = {*(stated or {}), *counted}
            apart = sum(abs((stated or {}).get(key, (0, 0))[0] - counted.get(key, (0, 0))[0]) for key in keys)
            name = pod.full_name if pod is not None else uid
            found[uid] = Drift(name, pod, apart)

    def _counted(self, uid: PodUid) -> Promises:
        """The promises to a pod that the ledger counts on the GPUs themselves."""
        booking = self.ledger.booking(uid)
        if booking is None:
            return {}
        there = (one for one in booking.grants if booking in self.ledger.on_gpu(booking.node, one.gpu))
        return _sums((booking.node, one.gpu, one.lifespan, one) for one in there)

    def _labels_differ(self, uid: PodUid, pod: Pod | None) -> bool:
        """Whether a pod whose promises are those of its decision has other locality labels there."""
        booking = self.ledger.booking(uid)
        decision = decision_of(pod) if booking is not None and pod is not None else None
        return booking is not None and decision is not None and booking.locality.stated != decision.labels

    def _mend(self, uid: PodUid, pod: Pod | None) -> None:
        if pod is None:
            self.cache.forget(uid)
            return
        self.ledger.forget(uid)
        try:
            self.cache.confirm(pod)
        except InputError as error:
            get_logger().error("bound pod counts in part", pod=uid, error=str(error))


def _stated(pod: Pod | None) -> Promises | None:
    """The promises to a bound pod by its decision; None for a GPU pod whose decision is missing or damaged."""
    if pod is None:
        return {}
    try:
        decision = decision_of(pod)
    except InputError:
        return None
    if decision is None:
        return None if asks_gpu(pod) else {}
    node = NodeName(pod.spec.nodeName or "")
    return _sums(
        (node, one.gpu, decision.start.lifespan(container), one)
        for container, grants in decision.containers.items()
        for one in grants
    )


def _sums(grants: Iterable[tuple[NodeName, GpuUuid, Lifespan, Grant | GpuGrant]]) -> Promises:
    """The promises to a pod by its grants: of containers that never run at the same time, the larger counts."""
    amounts: defaultdict[tuple[NodeName, GpuUuid], list[tuple[Lifespan, int, int]]] = defaultdict(list)
    for node, gpu, lifespan, grant in grants:
        declared = grant.line_bytes if grant.whole else grant.memory_bytes or 0
        amounts[node, gpu].append((lifespan, declared, grant.share_pct))
    return {
        key: (
            peak((lifespan, declared) for lifespan, declared, _ in own),
            peak((lifespan, share_pct) for lifespan, _, share_pct in own),
        )
        for key, own in amounts.items()
    }
