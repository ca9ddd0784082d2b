"""Names the pods to which the leader may be writing, in its Lease, so that the next leader can make late writes fail.

A bind or a resize may be on its way when its sender dies, and arrive after the next leader gave the room to another
pod. Both have the pod's resourceVersion as a precondition. So the next leader changes each pod for which a write may
be on its way, and then no such write can succeed (`placer.scheduler.binding.fence`). What always holds:

- No bind or resize is sent unless the Lease, as it is stored, has the pod in its scope. This costs no write per pod:
  each renewal writes a new scope. It covers pods that appear in the next moments, and the next pods of the queue.
- A scope has at most `WINDOW` + `LISTED` pods beside the writes under way, however many pods wait. So a new leader
  changes few pods before its first decision.
- A scope includes that of the leader before, until that leader's late writes can no longer succeed.

The versions of pods are compared with that of the Lease, which is of use where both are in the same etcd. Elsewhere
no promise breaks, but each bind has to wait for a renewal. A Lease without a scope (somebody deleted it) stands for
all pods that wait, and for no resize.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

import msgspec

from plimsoll.ids import PodUid
from plimsoll.kube.models import Pod

WINDOW: Final = 512
"""Versions ahead of the Lease that a scope has. A new pod in a cluster with fewer writes between two renewals needs
no renewal of its own. Each write in the cluster, of any object, takes one version."""
LISTED: Final = 256
"""Pods of the queue that a scope names: as many as are bound between two renewals, or half of them on a fast server.
Once half of them are used, the Lease is renewed at once, so that no bind waits for the next scope."""


class WriteScope(msgspec.Struct, frozen=True):
    """A set of pods.

    Attributes:
        after, until: the pods whose resourceVersion is later than `after` and not later than `until`.
        pods: further pods.
        resized: the pods that may be resized, as `<namespace>/<name>`.
    """

    after: int = 0
    until: int = 0
    pods: frozenset[PodUid] = frozenset()
    resized: frozenset[str] = frozenset()

    def has(self, pod: Pod) -> bool:
        """Whether a pod may be bound in this version."""
        return pod.metadata.uid in self.pods or self.after < int(pod.metadata.resourceVersion) <= self.until

    def common(self, other: "WriteScope") -> "WriteScope":
        """A scope whose pods are all in both."""
        window = max(self.after, other.after), min(self.until, other.until)
        return WriteScope(*window, self.pods & other.pods, self.resized & other.resized)

    def hull(self, other: "WriteScope") -> "WriteScope":
        """A scope that has all pods of both."""
        window = min(self.after, other.after), max(self.until, other.until)
        return WriteScope(*window, self.pods | other.pods, self.resized | other.resized)


ALL_PODS: Final = WriteScope(0, 2**63 - 1)
NO_PODS: Final = WriteScope()


@dataclass(slots=True)
class WriteScopes:
    """The scopes of one leader; it writes them as the notes of its Lease (`plimsoll.kube.lease.Notes`).

    Attributes:
        upcoming: gives this many pods at most that wait for a decision, the next first.
        hurry: has the Lease renewed at once; returns before that. None: there is no Lease, and no write waits.
        inherited: the scope of the earlier leader, until its late writes can no longer succeed.
    """

    upcoming: Callable[[int], Iterable[PodUid]]
    hurry: Callable[[], None] | None
    inherited: WriteScope | None = None
    _allowed: WriteScope = NO_PODS  # its pods are in each scope that the Lease may hold now
    _last: WriteScope = NO_PODS
    _pods: set[PodUid] = field(default_factory=set)  # being bound, or about to be
    _resized: set[str] = field(default_factory=set)  # likewise
    _used: int = 0  # pods that began to be bound since the last scope
    _renewed: asyncio.Event = field(default_factory=asyncio.Event)

    def found(self, note: str | None) -> None:
        """See `Notes`."""
        self.inherited = ALL_PODS if note is None else msgspec.json.decode(note, type=WriteScope)

    def next(self, version: int) -> str:
        """See `Notes`."""
        self._used = 0
        pods = frozenset(self._pods.union(self.upcoming(LISTED)))
        scope = WriteScope(version, version + WINDOW, pods, frozenset(self._resized))
        self._last = scope.hull(self.inherited) if self.inherited is not None else scope
        self._allowed = self._allowed.common(self._last)
        return msgspec.json.encode(self._last).decode()

    def stored(self) -> None:
        """See `Notes`."""
        self._allowed = self._last
        renewed, self._renewed = self._renewed, asyncio.Event()
        renewed.set()

    def expect_bind(self, pod: Pod) -> None:
        """Have a pod in each scope until `end_bind`: it has left the queue, and waits for its turn to be bound.

        Else each scope would miss the pods between queue and bind, and their binds would have the next one written.
        """
        self._pods.add(PodUid(pod.metadata.uid))

    async def begin_bind(self, pod: Pod) -> None:
        """Return once this pod may be bound in this version; it is in each scope until `end_bind`."""
        self.expect_bind(pod)
        self._used += 1
        if self._used == LISTED // 2 and self.hurry is not None:
            self.hurry()
        await self._until(lambda: self._allowed.has(pod))

    def end_bind(self, pod: Pod) -> None:
        """Note that no bind of this pod can succeed any more, and none is sent."""
        self._pods.discard(PodUid(pod.metadata.uid))

    async def begin_resize(self, name: str) -> None:
        """Return once this pod (`<namespace>/<name>`) may be resized; it is in each scope until `end_resize`."""
        self._resized.add(name)
        await self._until(lambda: name in self._allowed.resized)

    def end_resize(self, name: str) -> None:
        """Note that no resize of this pod can succeed any more, and none is sent."""
        self._resized.discard(name)

    async def _until(self, is_allowed: Callable[[], bool]) -> None:
        while self.hurry is not None and not is_allowed():
            self.hurry()
            await self._renewed.wait()
