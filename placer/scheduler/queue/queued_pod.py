"""A pod without a node, from its first attempt to its last, and the pods of one signature that fit nowhere."""

from collections.abc import Hashable, Mapping
from dataclasses import InitVar, dataclass, field
from itertools import islice
from typing import Final

from placer.scheduler.pods.pod_info import PodInfo
from placer.scheduler.queue.heap import Heap
from placer.scheduler.queue.queueing_hints import EVERYTHING, Cause
from placer.scheduler.queue.states import QueueState
from plimsoll.ids import NodeName, PodUid
from plimsoll.kube.models import Pod

FIRST_BACKOFF_S: Final = 1.0
LONGEST_BACKOFF_S: Final = 10.0

Rank = tuple[int, int, PodUid]
"""The order of pods, the least first."""


@dataclass(slots=True, eq=False)
class QueuedPodInfo:
    """A pod without a node. Its owner is the queue, which alone changes the state and what belongs to it.

    Attributes:
        pod: the pod as the watch showed it last.
        seen_s: the time at which it was first seen to wait.
        info: the pod as its decision reads it, once it was read; None again when the pod changes.
        refused_for: the reason of the last `unplaceable` event.
        overtaken: the number of refusals in a row that a change overtook.
        state: see `QueueState`.
        number: the order of entry; a pod that comes back to the active queue gets a new one.
        attempts: the number of its attempts.
        ready_s: the time at which it came to the active queue last.
        due_s: in `BACKOFF`, the time at which the backoff ends.
        alike: the pods with which it waits, or for which it is tried.
    """

    pod: Pod
    seen_s: float
    info: PodInfo | None = None
    refused_for: str = ""
    overtaken: int = 0
    state: QueueState = QueueState.NEVER_TRIED
    number: int = 0
    attempts: int = 0
    ready_s: float = 0.0
    due_s: float = 0.0
    alike: "SignatureClass | None" = None

    @property
    def uid(self) -> PodUid:
        """The pod's uid."""
        return PodUid(self.pod.metadata.uid)

    @property
    def priority(self) -> int:
        """`spec.priority`; higher goes first."""
        return self.pod.spec.priority or 0

    @property
    def rank(self) -> Rank:
        """The pod's place in any order of pods: by priority, then by entry."""
        return (-self.priority, self.number, self.uid)

    @property
    def is_unschedulable(self) -> bool:
        """Whether it fits nowhere, and waits for a change."""
        return self.state is QueueState.UNSCHEDULABLE


class PodHeap:
    """Pods by rank: those of one state, and of one signature if one is given.

    Args:
        pods: all pods of the queue.
        state: the state.
        alike: the pods of a signature.
    """

    def __init__(
        self, pods: Mapping[PodUid, QueuedPodInfo], state: QueueState, alike: "SignatureClass | None" = None
    ) -> None:
        self._pods = pods
        self._state = state
        self._alike = alike
        self._ranks: Heap[Rank] = Heap(self._is_current)

    def __len__(self) -> int:
        """The number of items that are kept, outdated ones included."""
        return len(self._ranks)

    def push(self, pod: QueuedPodInfo) -> None:
        """Add a pod that has come to this state, or whose rank changed."""
        self._ranks.push(pod.rank)

    def head(self) -> QueuedPodInfo | None:
        """The first pod, which stays; None if there is none."""
        rank = self._ranks.head()
        return None if rank is None else self._pods[rank[2]]

    def first(self, most: int | None = None) -> list[QueuedPodInfo]:
        """The first pods by rank, this many at most."""
        return [self._pods[uid] for _, _, uid in islice(self._ranks.in_order(), most)]

    def _is_current(self, rank: Rank) -> bool:
        before, number, uid = rank
        pod = self._pods.get(uid)
        if pod is None or pod.state is not self._state or pod.number != number or pod.priority != -before:
            return False
        return self._alike is None or pod.alike is self._alike


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The reasons why pods of one signature fit nowhere, which they share.

    Attributes:
        note: the text for people.
        causes: see `placer.scheduler.queue.queueing_hints.causes_of`.
        largest_request: see `placer.scheduler.queue.queueing_hints.largest_request`.
        reasons: all reasons in the note.
        priority: that of the pods; None if they may not preempt.
        topics: the changes that may lift `Cause.RULES`, see `PodRules.on_change`; None: any of them may.
        may_pass: it may not last, although no change is announced.
    """

    note: str = ""
    causes: Cause = EVERYTHING
    largest_request: int = 0
    reasons: frozenset[str] = frozenset()
    priority: int | None = None
    topics: frozenset[Hashable] | None = None
    may_pass: bool = False


@dataclass(slots=True, eq=False)
class SignatureClass:
    """Pods of one signature that fit nowhere: they get the same answer, so one is tried for all.

    Attributes:
        signature: equal for pods that get the same answer.
        number: the class's own, for an order among equals.
        known: all pods of the queue.
        pods: those that wait for the next try.
        waiting: the number of these pods.
        diagnosis: the one that was given last.
        chosen: the pod that is tried for all of them, or None.
        is_refused: the diagnosis is in force.
        backs_off: a change may have ended the diagnosis, so the class is tried again at `due_s`.
        refusals: the number of refusals since a pod of the class was placed.
        refused_s: the time of the last refusal.
        due_s: the time of the next try, while no pod is chosen.
        unprobed: nodes that changed since the refusal, in ways that may lift its causes.
    """

    signature: Hashable
    number: int
    known: InitVar[Mapping[PodUid, QueuedPodInfo]]
    pods: PodHeap = field(init=False)
    waiting: int = 0
    diagnosis: Diagnosis = Diagnosis()
    chosen: PodUid | None = None
    is_refused: bool = False
    backs_off: bool = False
    refusals: int = 0
    refused_s: float = 0.0
    due_s: float = 0.0
    unprobed: set[NodeName] = field(default_factory=set)

    def __post_init__(self, known: Mapping[PodUid, QueuedPodInfo]) -> None:
        self.pods = PodHeap(known, QueueState.UNSCHEDULABLE, self)

    @property
    def shared(self) -> Diagnosis | None:
        """The diagnosis that further pods share; None if no one is in force, or a change may have ended it."""
        return self.diagnosis if self.is_refused and not self.backs_off and not self.unprobed else None

    @property
    def first(self) -> QueuedPodInfo:
        """The first of the pods that wait; there must be one."""
        pod = self.pods.head()
        assert pod is not None, "a class that is refused has a pod"
        return pod


def backoff_s(attempts: int) -> float:
    """The pause after this many attempts, or refusals of a signature: 1 s, doubled with each, up to 10 s."""
    exponent = min(max(attempts - 1, 0), 10)  # far past the ceiling already
    return min(LONGEST_BACKOFF_S, FIRST_BACKOFF_S * 2.0**exponent)
