"""Evicts pods that are to be moved, through the eviction API, which respects disruption budgets.

What always holds: where several pods move together, the API server must be ready to evict each before the first is
evicted. A pod whose owner has taken the annotation back is not evicted.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from placer.scheduler.cache.cache import Cache
from placer.scheduler.pods.assigned_pods import AssignedPod
from placer.scheduler.preemption.executor import SparedPods, still_running
from placer.scheduler.preemption.writes import PreemptionWrites
from plimsoll.ids import PodUid
from plimsoll.kube.models import Pod
from plimsoll.kube.transport import ApiError
from plimsoll.part.ending import heed_cancellation


@dataclass(slots=True)
class Evictor:
    """Evicts pods.

    Attributes:
        cache: the pods that have a node.
        writes: the writes to the API server.
        on_evicted: called with each pod that was evicted, and the pod for which it moves, if any.
    """

    cache: Cache
    writes: PreemptionWrites
    on_evicted: Callable[[AssignedPod, Pod | None], None]
    _refused: SparedPods = field(default_factory=SparedPods)

    @property
    def refused(self) -> frozenset[PodUid]:
        """The pods whose eviction was refused not long ago, as by a disruption budget."""
        return self._refused.now()

    async def evict(
        self, pods: Sequence[AssignedPod], pod: Pod | None, still_waits: Callable[[], bool] = lambda: True
    ) -> str | None:
        """Evict pods that move, one after another; returns what was refused, or None.

        Args:
            pods: the pods.
            pod: the waiting pod for which they move; None where they move for no pod.
            still_waits: whether `pod` still waits for their room; once it does not, no further pod is evicted.
        """
        # Only the API server knows all budgets and webhooks, and one refusal makes the other evictions useless.
        for one in pods if len(pods) > 1 else ():
            heed_cancellation()
            try:
                await self.writes.evict(one.pod, is_trial=True)
            except ApiError as error:
                return self._not_evicted(one, error)
        for one in still_running(pods, self.cache):
            heed_cancellation()
            if not still_waits():
                return None
            if not one.is_relocatable:
                return f"pod {one.pod.full_name} may not be moved any more: its annotation is gone"
            try:
                ended = await self.writes.evict(one.pod)
            except ApiError as error:
                return self._not_evicted(one, error)
            if ended:
                self.on_evicted(one, pod)
        return None

    def _not_evicted(self, one: AssignedPod, error: ApiError) -> str:
        self._refused.add(one.uid)
        return f"pod {one.pod.full_name} was not evicted: {error}"
