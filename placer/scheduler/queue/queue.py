"""The queue of pods that wait for a node: active, backing off, or unschedulable until something changes.

Rank is priority, then entry: a pod that comes back stands behind those that came before. While pods wait that were
never tried, retries and probes get a bounded share of the time, see `placer.scheduler.queue.active`.

A pod that fits nowhere waits with all pods of its signature for the try of one. A node that changed is probed for the
signatures that may gain by it, the first rank first. As soon as a pod fits there, it is tried, before the next probe:
so each pod finds the room that the pods before it left, and no pod is refused because another one was faster. Where a
change cannot be probed, a signature is tried again 1 s after its last refusal, doubled with each refusal up to 10 s,
and after five minutes in any case. When a pod of the signature is placed, the next is tried at once.

The queue reads no clock: `now_s` is any that never goes back. What always holds: a pod is in one state only
(`placer.scheduler.queue.states`), and a change of a pod during its attempt is never lost. A change of a node during
an attempt is not noted here: a refusal must hold at the moment when it is given.
"""

import asyncio
import random
from collections.abc import Callable, Hashable, Iterator
from itertools import count, islice
from typing import Final

from placer.scheduler.queue.active import ActiveQueue, BackoffQueue
from placer.scheduler.queue.queued_pod import Diagnosis, QueuedPodInfo, SignatureClass, backoff_s
from placer.scheduler.queue.queueing_hints import NOTHING, Cause, ClusterEvent
from placer.scheduler.queue.states import LEAVES_SIGNATURE, NEXT, QueueEvent, QueueState
from placer.scheduler.queue.unschedulable import Probe, UnschedulablePods
from plimsoll.ids import NodeName, PodUid
from plimsoll.kube.models import Pod

UNSCHEDULABLE_AT_MOST_S: Final = 300.0
"""A signature that fits nowhere is tried again after this long, in case a change was missed. The first half is
certain, the rest is spread at random, so that signatures which were refused together do not come back together."""


class Queue:
    """All pods that wait for a node. An event of a pod that is not in the queue, or not in flight, is no error.

    Attributes:
        active: the pods that may be tried now, for readers.
        unschedulable: the pods that fit nowhere, for readers.
        work: set when `pop` may have work.

    Args:
        spread: draws numbers from 0 to 1, see `UNSCHEDULABLE_AT_MOST_S`.
    """

    def __init__(self, spread: Callable[[], float] = random.random) -> None:
        self._spread = spread
        self._pods: dict[PodUid, QueuedPodInfo] = {}
        self.active = ActiveQueue(self._pods)
        self.unschedulable = UnschedulablePods(self._pods)
        self.work = asyncio.Event()
        self._backoff = BackoffQueue(self._pods)
        self._numbers = count(1)
        self._probed_node: NodeName | None = None
        self._fitting: QueuedPodInfo | None = None  # the pod whose probe fitted, until it is tried
        self._counts = dict.fromkeys(QueueState, 0)

    def __len__(self) -> int:
        return len(self._pods)

    def __contains__(self, uid: object) -> bool:
        return uid in self._pods

    def __iter__(self) -> Iterator[QueuedPodInfo]:
        """All pods as they are now; the queue may change meanwhile."""
        return iter(tuple(self._pods.values()))

    def get(self, uid: PodUid) -> QueuedPodInfo | None:
        """A pod; None if it does not wait."""
        return self._pods.get(uid)

    @property
    def counts(self) -> dict[QueueState, int]:
        """The number of pods in each state."""
        return dict(self._counts)

    def upcoming(self, most: int) -> list[PodUid]:
        """Pods that may be tried next, this many at most: active ones, and the first of each signature."""
        heads = (one.pods.head() for one in islice(self.unschedulable, most // 4))
        first = [pod.uid for pod in heads if pod is not None]
        tried = [pod.uid for pod in self.active.tried.first(most // 4)]
        never_tried = self.active.never_tried.first(most - len(tried) - len(first))
        return [*(pod.uid for pod in never_tried), *tried, *first]

    def due_s(self) -> float | None:
        """The next time at which a pod becomes active by itself, on the clock of `now_s`; None if there is none."""
        return self._backoff.due_s()

    def update(self, pod: Pod, now_s: float, *, is_changed: bool = True, was_tried: bool = False) -> None:
        """Add a pod that waits, or take in a later version of it.

        Args:
            pod: the pod.
            now_s: the time.
            is_changed: something changed that a decision reads; a pod that was tried before is tried again soon.
            was_tried: another placer has tried it.
        """
        uid = PodUid(pod.metadata.uid)
        known = self._pods.get(uid)
        if known is None:
            known = QueuedPodInfo(pod, now_s, number=next(self._numbers), ready_s=now_s)
            self._pods[uid] = known
            self._counts[known.state] += 1
            self.active.never_tried.push(known)
            self.work.set()
            is_changed = False
        known.pod = pod
        if is_changed:
            known.info = None
            self._take_in(known, QueueEvent.ACTIVATED, now_s)
        elif was_tried:
            self._take_in(known, QueueEvent.TRIED_ELSEWHERE, now_s)

    def delete(self, uid: PodUid, now_s: float) -> None:
        """Remove a pod that is bound, gone, or no longer ours."""
        pod = self._pods.pop(uid, None)
        if pod is not None:
            self._leave(pod, now_s)
            self._counts[pod.state] -= 1
            pod.state = QueueState.REJECTED  # for those that still hold it

    def activate(self, uid: PodUid, now_s: float) -> None:
        """Try a pod soon: something changed that it alone waits for."""
        self._note(uid, QueueEvent.ACTIVATED, now_s)

    def claim_changed(self, uid: PodUid, now_s: float) -> None:
        """Try a pod soon if it fits nowhere: a claim of it changed."""
        self._note(uid, QueueEvent.CLAIM_CHANGED, now_s)

    def pop(self, now_s: float) -> QueuedPodInfo | Probe | None:
        """The work to do now: the attempt of a pod, or a probe; None if there is none.

        After an attempt call `assumed`, `requeue`, `add_unschedulable`, `reject` or `delete`. After a probe call
        `probed`.
        """
        self.active.charge(now_s)
        self._flush(now_s)
        newest = self.active.never_tried.head()
        work = self._probe_or_retry(newest) if self.active.may_retry else None
        is_first_try = work is None
        work = work or newest
        if work is not None:
            self.active.begin(is_first_try=is_first_try)
        if isinstance(work, QueuedPodInfo):
            self._take_in(work, QueueEvent.POPPED, now_s)
        return work

    def assumed(self, uid: PodUid, now_s: float) -> None:
        """Note that a pod has a place and is being bound; the next pod of its signature is tried."""
        pod = self._pods.get(uid)
        if pod is not None and pod.alike is not None:
            pod.alike.refusals = 0
        self._note(uid, QueueEvent.ASSUMED, now_s)

    def requeue(self, uid: PodUid, now_s: float, pause_s: float | None = None) -> None:
        """Try a pod again after its backoff: its attempt or its bind failed.

        With `pause_s`, it is tried after that pause: there was no attempt, or, where that is 0, a change overtook it.
        """
        self._note(uid, QueueEvent.OVERTAKEN if pause_s == 0.0 else QueueEvent.FAILED, now_s)
        pod = self._pods.get(uid)
        if pause_s and pod is not None and pod.state is QueueState.BACKOFF:
            pod.attempts -= 1
            pod.due_s = now_s + pause_s
            self._backoff.set(pod)

    def reject(self, uid: PodUid, now_s: float) -> None:
        """Stop trying a pod that only its own change can help: it is malformed, or asks for the impossible."""
        self._note(uid, QueueEvent.FAULTED, now_s)

    def add_unschedulable(
        self, uid: PodUid, signature: Hashable, found: Diagnosis | None, now_s: float
    ) -> None:
        """Let a pod that fits nowhere at this moment wait; one that changed meanwhile backs off.

        Args:
            uid: the pod.
            signature: equal for pods that get the same answer.
            found: the diagnosis, which knows all changes so far; None: the pod shares that of its signature.
            now_s: the time.
        """
        pod = self._pods.get(uid)
        if pod is None or pod.state is not QueueState.IN_FLIGHT:
            self._note(uid, QueueEvent.REFUSED, now_s)
            return
        alike = self.unschedulable.add(signature, next(self._numbers))
        if found is not None and alike.chosen is not None:
            self._pods[alike.chosen].alike = None  # its own attempt finds this diagnosis
            alike.chosen = None
        if pod.alike is not alike:
            self._leave(pod, now_s)
            pod.alike = alike
        self._take_in(pod, QueueEvent.REFUSED, now_s)
        if found is not None:
            alike.refusals += 1
            alike.refused_s = now_s
            self.unschedulable.refuse(alike, found)
            alike.due_s = now_s + UNSCHEDULABLE_AT_MOST_S * (1 + self._spread()) / 2
            self._backoff.set(alike)
            if found.may_pass:
                self._back_off(alike, now_s)

    def move_on(self, event: ClusterEvent, now_s: float) -> None:
        """Bring pods back that a change may help: those that fit a changed node, or all whose causes it may lift."""
        unschedulable = self.unschedulable
        if event.node is not None:
            helped = unschedulable.plan_probes(event.node, event)
        else:
            helped = unschedulable.with_cause(event.causes, event.topics)
        for alike in helped:
            self._back_off(alike, now_s)
        self.work.set()

    def probed(self, probe: Probe, causes: Cause, now_s: float, *, is_news: bool = False) -> None:
        """Note a probe's result.

        Args:
            probe: the probe.
            causes: the causes that keep the pod from the node; none if the node could take it.
            now_s: the time.
            is_news: a reason was found that the diagnosis does not name, so that its text is outdated.
        """
        if self.unschedulable.probed(probe, causes):
            if causes == NOTHING:
                self.unschedulable.leave(probe.alike)
                self._fitting = self._choose(probe.alike, now_s)
            elif is_news:
                self._back_off(probe.alike, now_s)
        if not self.unschedulable.has_probes:
            self._probed_node = None

    def _flush(self, now_s: float) -> None:
        """Activate what has waited for its time."""
        while (due_s := self.due_s()) is not None and due_s <= now_s:
            one = self._backoff.pop()
            if isinstance(one, SignatureClass):
                self.unschedulable.leave(one)
                self._choose(one, now_s)
            else:
                self._take_in(one, QueueEvent.BACKED_OFF, now_s)

    def _probe_or_retry(self, newest: QueuedPodInfo | None) -> QueuedPodInfo | Probe | None:
        """A probe or a retry. All probes of a node come before the retries, so the highest rank gets its room.

        Args:
            newest: the first pod that was never tried, which goes before retries of lower priority.
        """
        fitting, self._fitting = self._fitting, None
        if fitting is not None and fitting.state is QueueState.TRIED:
            if newest is None or fitting.priority >= newest.priority:
                return fitting
            self._fitting = fitting
            return None
        retry = self.active.tried.head()
        if retry is not None and newest is not None and retry.priority < newest.priority:
            retry = None
        probe = self.unschedulable.next_probe()
        if retry is not None and (probe is None or self._probed_node not in (None, probe.node)):
            self._probed_node = None  # nodes that change all the time leave room for retries
            return retry
        if probe is not None:
            self._probed_node = probe.node
        return probe

    def _back_off(self, alike: SignatureClass, now_s: float) -> None:
        """Try a signature once its backoff is over, or earlier if a probe shows that it fits."""
        if alike.is_refused and not alike.backs_off:
            alike.backs_off = True
            alike.due_s = max(now_s, alike.refused_s + backoff_s(alike.refusals))
            self._backoff.set(alike)

    def _choose(self, alike: SignatureClass, now_s: float) -> QueuedPodInfo | None:
        """Let the first pod of a signature be tried for all; returns it."""
        pod = alike.pods.head()
        if pod is not None:
            alike.waiting -= 1
            alike.chosen = pod.uid
            self._take_in(pod, QueueEvent.CHOSEN, now_s)
        return pod

    def _leave(self, pod: QueuedPodInfo, now_s: float) -> None:
        """Take a pod out of those of its signature; if it was tried for all, the next one is."""
        alike, pod.alike = pod.alike, None
        if alike is None:
            return
        if alike.chosen == pod.uid:
            alike.chosen = None
            self._choose(alike, now_s)
        else:
            alike.waiting -= 1
        if alike.chosen is None and alike.waiting == 0:
            self.unschedulable.drop(alike)

    def _note(self, uid: PodUid, event: QueueEvent, now_s: float) -> None:
        pod = self._pods.get(uid)
        if pod is not None:
            self._take_in(pod, event, now_s)

    def _take_in(self, pod: QueuedPodInfo, event: QueueEvent, now_s: float) -> None:
        """Let a pod come to its next state."""
        state = NEXT[pod.state].get(event)
        if state is None:
            return
        if event in LEAVES_SIGNATURE:
            self._leave(pod, now_s)
        self._counts[pod.state] -= 1
        self._counts[state] += 1
        pod.state = state
        self.work.set()
        match state:
            case QueueState.NEVER_TRIED:
                self.active.never_tried.push(pod)
            case QueueState.TRIED:
                pod.number, pod.ready_s = next(self._numbers), now_s
                self.active.tried.push(pod)
            case QueueState.IN_FLIGHT:
                pod.attempts += 1
            case QueueState.BACKOFF:
                pod.due_s = now_s + backoff_s(pod.attempts)
                self._backoff.set(pod)
            case QueueState.UNSCHEDULABLE:
                assert pod.alike is not None, "its signature is set before"
                pod.alike.waiting += 1
                pod.alike.pods.push(pod)
            case _:
                pass
