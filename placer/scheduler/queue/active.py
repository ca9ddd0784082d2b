"""The pods that may be tried now, the time that each sort of them gets, and the pods that wait for a time.

Pods that were never tried have a heap of their own. What always holds: while such pods wait, retries and probes take
`RETRIES_SHARE` of the time in the long run. So a new pod never waits for pods that fit nowhere, and these are not
forgotten either. Pure.
"""

from collections.abc import Mapping
from typing import Final

from placer.scheduler.queue.heap import Heap
from placer.scheduler.queue.queued_pod import PodHeap, QueuedPodInfo, SignatureClass
from placer.scheduler.queue.states import QueueState
from plimsoll.ids import PodUid

RETRIES_SHARE: Final = 0.2
"""The share of the time that retries and probes get while pods wait that were never tried."""
LARGEST_DEBT_S: Final = 1.0
"""A retry or a probe that took longer, because the process stood still, counts as this."""
ALLOWANCE_S: Final = 0.05
"""The time that retries and probes may take in one piece while a pod waits that was never tried."""


class ActiveQueue:
    """The active queue. `charge` it before each work is taken, and `begin` the work that was taken.

    Attributes:
        never_tried: the pods without an attempt.
        tried: the other pods.

    Args:
        pods: all pods of the queue.
    """

    def __init__(self, pods: Mapping[PodUid, QueuedPodInfo]) -> None:
        self.never_tried = PodHeap(pods, QueueState.NEVER_TRIED)
        self.tried = PodHeap(pods, QueueState.TRIED)
        self._left_s = ALLOWANCE_S
        self._is_first_try: bool | None = None  # of the work under way
        self._since_s = 0.0

    def heap_of(self, state: QueueState) -> PodHeap | None:
        """The heap of the pods in a state; None for a state outside of the active queue."""
        return {QueueState.NEVER_TRIED: self.never_tried, QueueState.TRIED: self.tried}.get(state)

    @property
    def may_retry(self) -> bool:
        """Whether a retry or a probe may go before pods that were never tried now."""
        return self._left_s > 0

    def begin(self, *, is_first_try: bool) -> None:
        """Note which work begins: the first try of a pod, or a retry or probe."""
        self._is_first_try = is_first_try

    def charge(self, now_s: float) -> None:
        """Settle the time of the work that was taken last. Where only retries wait, they take no time from any."""
        spent_s = now_s - self._since_s
        if self._is_first_try:
            self._left_s = min(ALLOWANCE_S, self._left_s + spent_s * RETRIES_SHARE / (1 - RETRIES_SHARE))
        elif self._is_first_try is not None:
            self._left_s = max(-LARGEST_DEBT_S, self._left_s - spent_s)
        self._is_first_try, self._since_s = None, now_s
        if self.never_tried.head() is None:
            self._left_s = ALLOWANCE_S


_Timer = tuple[float, int, PodUid | SignatureClass]


class BackoffQueue:
    """The pods that back off and the signatures that fit nowhere, by the time at which each is tried again.

    Args:
        pods: all pods of the queue.
    """

    def __init__(self, pods: Mapping[PodUid, QueuedPodInfo]) -> None:
        self._pods = pods
        self._timers: Heap[_Timer] = Heap(self._is_current)
        self._numbers = 0

    def __len__(self) -> int:
        """The number of items that are kept, outdated ones included."""
        return len(self._timers)

    def set(self, one: QueuedPodInfo | SignatureClass) -> None:
        """Let a pod or a signature come back at its `due_s`. An earlier timer of it is outdated once that differs."""
        self._numbers += 1
        self._timers.push((one.due_s, self._numbers, one if isinstance(one, SignatureClass) else one.uid))

    def due_s(self) -> float | None:
        """The next time at which something is tried by itself, on the clock of `now_s`; None if there is none."""
        first = self._timers.head()
        return None if first is None else first[0]

    def pop(self) -> QueuedPodInfo | SignatureClass:
        """Take the pod or the signature that is due next; there must be one."""
        one = self._timers.pop()[2]
        return one if isinstance(one, SignatureClass) else self._pods[one]

    def _is_current(self, timer: _Timer) -> bool:
        due_s, _, one = timer
        if isinstance(one, SignatureClass):
            return one.waiting > 0 and one.chosen is None and one.due_s == due_s
        pod = self._pods.get(one)
        return pod is not None and pod.state is QueueState.BACKOFF and pod.due_s == due_s
