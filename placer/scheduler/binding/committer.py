"""Writes a plan to the API server: binds the pod's claims, then the pod, or frees its place.

What always holds: a pod whose writes failed has no place any more, unless the watch has shown it bound, and it is
tried again. A long wait holds no permit to write.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from placer.core.plan import Plan
from placer.metrics import Metrics
from placer.scheduler.binding.binding import Binder, BindResult, Ending, PodBinding, decision_annotations
from placer.scheduler.cache.cache import Cache
from placer.scheduler.clock import loop_now_s
from placer.scheduler.plugins.default_preemption.nominating import Nominating
from placer.scheduler.plugins.volumes.reservation import VolumeReservation
from placer.scheduler.plugins.volumes.waiting import PodClaims
from placer.scheduler.pods.pod_info import PodInfo
from placer.scheduler.queue.queue import Queue
from placer.scheduler.queue.queued_pod import QueuedPodInfo
from placer.scheduler.reporting.condition import SCHEDULER_ERROR
from placer.scheduler.reporting.record import Recorder
from placer.scheduler.reporting.results import Results
from plimsoll.ids import PodUid
from plimsoll.part.log import get_logger
from plimsoll.part.times import rfc3339

SLOW_S: Final = 1.0
"""Seconds after which a bind under way is slow, and for which a pod beside slow ones of its namespace is put off."""
SLOW_AT_MOST: Final = 4
"""Slow binds of one namespace beside which no further pod of it is tried. A webhook of admission may hang for one
namespace. The other permits are left to the other namespaces then."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A pod whose place is booked and not yet written.

    Attributes:
        info: the pod's demand.
        plan: its place.
        seen_s: when the pod was first seen, on the loop's clock.
        volumes: those that must be bound before the pod; None for a pod without any.
    """

    info: PodInfo
    plan: Plan
    seen_s: float
    volumes: VolumeReservation | None = None


@dataclass(frozen=True, slots=True)
class Committer:
    """Carries out plans.

    Attributes:
        queue: the pods without a node.
        cache: holds the places of the pods that are being bound.
        claims: binds them.
        binder: binds pods.
        recorder: writes news; it waits while pods are being bound.
        results: reports each result to people, and on the bus.
        nominating: learns of nominated pods that were not bound.
        metrics: measures binds.
        clock: the wall clock in UTC.
        permits: one for each write that may be under way together with others.
        late_permits: the same for claims, and for pods whose claims were bound before.
    """

    queue: Queue
    cache: Cache
    claims: PodClaims
    binder: Binder
    recorder: Recorder
    results: Results
    nominating: Nominating
    metrics: Metrics
    clock: Callable[[], datetime]
    permits: asyncio.Semaphore
    late_permits: asyncio.Semaphore
    _slow: Counter[str] = field(default_factory=Counter)  # by namespace

    def is_held_up(self, namespace: str) -> bool:
        """Whether so many binds of a namespace are slow that no further one should begin."""
        return self._slow[namespace] >= SLOW_AT_MOST

    def puts_off(self, queued: QueuedPodInfo) -> bool:
        """Put a pod off, if its namespace is held up; returns whether it is."""
        held_up = self.is_held_up(queued.pod.metadata.namespace)
        if held_up:
            self.queue.requeue(queued.uid, loop_now_s(), SLOW_S)
        return held_up

    async def take(self, placed: Placed) -> contextlib.ExitStack:
        """Take a permit for the writes of a pod, once one is free; closing the result gives it back."""
        return await self._take(self.permits, placed)

    async def commit(self, placed: Placed, taken: contextlib.ExitStack) -> None:
        """Bind an assumed pod, or free its place; `taken` is given back at the end, or before a long wait.

        Cancelling abandons the write under way. The next start reads its result.
        """
        with taken:
            if placed.volumes is None:
                await self._bind(placed, taken.close)
                return
            taken.close()  # claims may take minutes
            if await self._has_volumes(placed, placed.volumes):
                with await self._take(self.late_permits, placed) as late:
                    await self._bind(placed, late.close)

    async def _take(self, permits: asyncio.Semaphore, placed: Placed) -> contextlib.ExitStack:
        await permits.acquire()
        taken = contextlib.ExitStack()
        taken.callback(permits.release)
        taken.enter_context(self.recorder.put_off())
        taken.enter_context(self._timed(placed.info.pod.metadata.namespace))
        return taken

    @contextlib.contextmanager
    def _timed(self, namespace: str) -> Iterator[None]:
        """Count a bind as slow from `SLOW_S` on, until it ends or gives its permit back."""
        slow = False

        def note() -> None:
            nonlocal slow
            slow = True
            self._slow[namespace] += 1

        timer = asyncio.get_running_loop().call_later(SLOW_S, note)
        try:
            yield
        finally:
            timer.cancel()
            if slow:
                self._slow[namespace] -= 1
                if not self._slow[namespace]:
                    del self._slow[namespace]

    async def _has_volumes(self, placed: Placed, volumes: VolumeReservation) -> bool:
        """Bind the claims of an assumed pod; returns whether they are bound. Else the pod's place is free again."""
        uid = placed.info.request.pod
        problem = await self.claims.bind(volumes)
        if problem is None:
            return True
        pod = placed.info.pod
        get_logger().warning(
            "volumes not bound", pod=pod.full_name, node=placed.plan.booking.node, error=problem
        )
        if self.cache.is_assumed(uid):
            self.cache.forget(uid)
        self.queue.requeue(uid, loop_now_s())
        self.results.refused(pod, problem, SCHEDULER_ERROR)
        return False

    async def _bind(self, placed: Placed, on_long_wait: Callable[[], None]) -> None:
        uid, plan = placed.info.request.pod, placed.plan
        queued, node = self.queue.get(uid), plan.booking.node
        is_same = queued is not None and queued.info is placed.info
        pod = queued.pod if queued is not None and is_same else placed.info.pod
        binding = PodBinding(pod, node, decision_annotations(plan, rfc3339(self.clock())))
        with self.metrics.binds.seconds.time():
            ending = await self.binder.bind(binding, on_long_wait)
        if ending.result is BindResult.BOUND:
            self.metrics.binds.pending_seconds.observe(loop_now_s() - placed.seen_s)
            self.claims.forget_waiting(uid)
            self.queue.delete(uid, loop_now_s())
            self.results.placed(pod, plan)
            return
        self.metrics.binds.failures.labels(ending.result.name.lower()).inc()
        get_logger().warning(
            "not bound", pod=pod.full_name, node=node, outcome=ending.result.value, error=ending.message
        )
        if self.cache.is_assumed(uid):  # else the watch has already shown the pod bound, ended or deleted
            self.cache.forget(uid)
            if (queued := self.queue.get(uid)) is not None:
                self.nominating.not_bound(queued.pod)
        self._try_again(uid, ending)
        if ending.result is BindResult.REFUSED:
            self.results.refused(pod, f"Binding was refused: {ending.message}", SCHEDULER_ERROR)

    def _try_again(self, uid: PodUid, ending: Ending) -> None:
        """Try a pod that was not bound again: at once if it only changed meanwhile, else after its backoff."""
        queued = self.queue.get(uid)
        if ending.pod is not None and queued is not None:  # the watch may not have shown the change yet
            queued.pod, queued.info = ending.pod, None
        self.queue.requeue(uid, loop_now_s(), None if ending.pod is None else 0.0)
