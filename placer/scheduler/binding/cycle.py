"""The binding cycle: PreBind binds the pod's claims, Bind the pod, and PostBind reports it; or the place is freed.

What always holds: a pod whose writes failed has no place any more, unless the watch has shown it bound, and it is
tried again. A long wait holds no permit to write.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from placer.core.plan import Plan
from placer.metrics import Metrics
from placer.scheduler.binding.binding import Binder, BindResult, Ending
from placer.scheduler.binding.volumes import VolumeBinding
from placer.scheduler.cache.cache import Cache
from placer.scheduler.clock import loop_now_s
from placer.scheduler.plugins.volume_binding import AssumedVolumes
from placer.scheduler.pods.pod_info import PodInfo
from placer.scheduler.preemption.nominated_pods import NominatedPods
from placer.scheduler.queue.queue import Queue
from placer.scheduler.queue.queued_pod import QueuedPodInfo
from placer.scheduler.reporting.condition import SCHEDULER_ERROR
from placer.scheduler.reporting.results import Results
from plimsoll.ids import PodUid
from plimsoll.part.log import get_logger

SLOW_S: Final = 1.0
"""Seconds after which a bind under way is slow, and for which a pod beside slow ones of its namespace is put off."""
SLOW_AT_MOST: Final = 4
"""Slow binds of one namespace beside which no further pod of it is tried. A webhook of admission may hang for one
namespace. The other permits are left to the other namespaces then."""


@dataclass(frozen=True, slots=True)
class Assumed:
    """A pod whose place is booked, and not yet written.

    Attributes:
        info: the pod's demand.
        plan: its place.
        seen_s: when the pod was first seen, on the loop's clock.
        volumes: those that must be bound before the pod; None for a pod without any.
    """

    info: PodInfo
    plan: Plan
    seen_s: float
    volumes: AssumedVolumes | None = None


@dataclass(frozen=True, slots=True)
class Permits:
    """Permits for writes that may be under way together.

    Attributes:
        binds: for the binds of pods.
        late: for claims, and for pods whose claims were bound before: a claim may take minutes.
    """

    binds: asyncio.Semaphore
    late: asyncio.Semaphore

    @classmethod
    def of(cls, most: int) -> "Permits":
        """So many of each."""
        return cls(asyncio.Semaphore(most), asyncio.Semaphore(most))


@dataclass(frozen=True, slots=True)
class BindingCycle:
    """Carries out plans.

    Attributes:
        queue: the pods without a node.
        cache: holds the places of the pods that are being bound.
        claims: binds them.
        binder: binds pods.
        results: reports each result to people, and on the bus. Its recorder waits while pods are being bound.
        nominated: learns of nominated pods that were not bound.
        metrics: measures binds.
        permits: one for each write.
    """

    queue: Queue
    cache: Cache
    claims: VolumeBinding
    binder: Binder
    results: Results
    nominated: NominatedPods
    metrics: Metrics
    permits: Permits
    _slow: Counter[str] = field(default_factory=Counter)  # by namespace

    def is_held_up(self, namespace: str) -> bool:
        """Whether so many binds of a namespace are slow that no further one should begin."""
        return self._slow[namespace] >= SLOW_AT_MOST

    def puts_off(self, pod: QueuedPodInfo) -> bool:
        """Put a pod off, if its namespace is held up; returns whether it is."""
        is_held_up = self.is_held_up(pod.pod.metadata.namespace)
        if is_held_up:
            self.queue.requeue(pod.uid, loop_now_s(), SLOW_S)
        return is_held_up

    async def permit(self, assumed: Assumed) -> contextlib.ExitStack:
        """Take a permit for the writes of a pod, once one is free; closing the result gives it back."""
        if assumed.volumes is None:  # else minutes may pass before its bind
            self.binder.scopes.expect_bind(assumed.info.pod)
        return await self._take(self.permits.binds, assumed)

    async def run(self, assumed: Assumed, permit: contextlib.ExitStack) -> None:
        """PreBind, Bind and PostBind of an assumed pod, or free its place.

        The permit is given back at the end, or before a long wait. Cancelling abandons the write under way. The next
        start reads its result.
        """
        with permit:
            if assumed.volumes is None:
                await self._bind(assumed, permit.close)
                return
            permit.close()  # claims may take minutes
            if await self._pre_bind(assumed, assumed.volumes):
                with await self._take(self.permits.late, assumed) as late:
                    await self._bind(assumed, late.close)

    async def _take(self, permits: asyncio.Semaphore, assumed: Assumed) -> contextlib.ExitStack:
        await permits.acquire()
        taken = contextlib.ExitStack()
        taken.callback(permits.release)
        taken.enter_context(self.results.recorder.put_off())
        taken.enter_context(self._timed(assumed.info.pod.metadata.namespace))
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

    async def _pre_bind(self, assumed: Assumed, volumes: AssumedVolumes) -> bool:
        """Bind the claims of an assumed pod; returns whether they are bound. Else the pod's place is free again."""
        uid = assumed.info.request.pod
        problem = await self.claims.pre_bind(volumes)
        if problem is None:
            return True
        pod = assumed.info.pod
        get_logger().warning(
            "volumes not bound", pod=pod.full_name, node=assumed.plan.booking.node, error=problem
        )
        if self.cache.is_assumed(uid):
            self.cache.forget(uid)
        self.queue.requeue(uid, loop_now_s())
        self.results.refused(pod, problem, SCHEDULER_ERROR)
        return False

    async def _bind(self, assumed: Assumed, on_long_wait: Callable[[], None]) -> None:
        uid, plan = assumed.info.request.pod, assumed.plan
        queued, node = self.queue.get(uid), plan.booking.node
        is_same = queued is not None and queued.info is assumed.info
        pod = queued.pod if queued is not None and is_same else assumed.info.pod
        binding = self.binder.binding(pod, plan)
        with self.metrics.binds.seconds.time():
            ending = await self.binder.bind(binding, on_long_wait)
        if ending.result is BindResult.BOUND:
            self.metrics.binds.pending_seconds.observe(loop_now_s() - assumed.seen_s)
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
                self.nominated.not_bound(queued.pod)
        self._try_again(uid, ending)
        if ending.result is BindResult.REFUSED:
            self.results.refused(pod, f"Binding was refused: {ending.message}", SCHEDULER_ERROR)

    def _try_again(self, uid: PodUid, ending: Ending) -> None:
        """Try a pod that was not bound again: at once if it only changed meanwhile, else after its backoff."""
        queued = self.queue.get(uid)
        if ending.pod is not None and queued is not None:  # the watch may not have shown the change yet
            queued.pod, queued.info = ending.pod, None
        self.queue.requeue(uid, loop_now_s(), None if ending.pod is None else 0.0)
