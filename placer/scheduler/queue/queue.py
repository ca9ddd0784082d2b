"""The queue of pods that wait for a node: fresh, tried again, backing off, or parked until something changes.

Rank is priority, then entry: a pod that comes back stands behind those that came before. Pods that were never tried
have a lane of their own. While fresh pods wait, retries and probes get a bounded share of the time, see
`placer.scheduler.queue.retry_allowance`.

A pod that fits nowhere is parked with its kind: all pods of a kind wait for the try of one. A node that changed is
probed for the kinds that may gain by it, the first rank first. As soon as a kind fits there, its first pod is tried,
before the next probe: so each pod finds the room that the pods before it left, and no pod is refused because another
one was faster. Where a change cannot be probed, a kind is tried again 1 s after its last refusal, doubled with each
refusal up to 10 s, and after five minutes in any case. When a pod of the kind is placed, the next is tried at once.

Pure: `now_s` is any clock that never goes back. What always holds: a pod is in one place only, and a change of a pod
during its attempt is never lost. A change of a node during an attempt is not noted here: a refusal must hold at the
moment when it is parked.
"""

import random
from collections.abc import Callable, Collection, Hashable
from itertools import count, islice
from typing import Final

from placer.scheduler.queue.hints import NOTHING, Cause, Gain
from placer.scheduler.queue.kinds import PodKinds
from placer.scheduler.queue.lanes import Lane, QueuedPod, QueuePlace, Timers, backoff_s
from placer.scheduler.queue.parking import KindRefusal, Parking, PodKind
from placer.scheduler.queue.retry_allowance import RetryAllowance
from placer.scheduler.queue.tries import Probe, Try
from plimsoll.ids import NodeName, PodUid

PARKED_AT_MOST_S: Final = 300.0
"""A parked kind is tried again after this long, in case a change was missed. The first half is certain, the rest is
spread at random, so that kinds which were parked together do not come back together."""


class Queue:
    """All pods that wait for a node, with their attempts.

    Attributes:
        kinds: the kinds of the pods that fit nowhere, for readers.

    Args:
        spread: draws numbers from 0 to 1, see `PARKED_AT_MOST_S`.
    """

    def __init__(self, spread: Callable[[], float] = random.random) -> None:
        self._spread = spread
        self._entries: dict[PodUid, QueuedPod] = {}
        self.kinds = PodKinds(self._entries)
        self._parking = Parking(self.kinds.rank_of)
        self._fresh = Lane(QueuePlace.FRESH, self._entries)
        self._retries = Lane(QueuePlace.RETRY, self._entries)
        self._timers = Timers()
        self._numbers = count(1)
        self._allowance = RetryAllowance()
        self._probed_node: NodeName | None = None
        self._fitting: QueuedPod | None = None  # the pod whose probe fitted, until it is tried
        self._counts = dict.fromkeys(QueuePlace, 0)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, uid: object) -> bool:
        return uid in self._entries

    @property
    def counts(self) -> dict[QueuePlace, int]:
        """The number of pods in each place."""
        return dict(self._counts)

    @property
    def counts_by_cause(self) -> dict[Cause, int]:
        """The number of parked pods with each cause; a pod may have several."""
        return {cause: sum(kind.waiting for kind in self._parking.with_cause(cause)) for cause in Cause}

    @property
    def has_fresh(self) -> bool:
        """Whether a pod waits that was never tried."""
        return self._fresh.head() is not None

    @property
    def heeds_changes(self) -> bool:
        """Whether a gain can matter now: a kind is parked."""
        return len(self._parking) > 0

    @property
    def highest_preemptor(self) -> int | None:
        """The highest priority of parked pods that may preempt; None if there are none."""
        return self._parking.highest

    def upcoming(self, most: int) -> list[PodUid]:
        """Pods that may be tried next, this many at most: of both lanes and of parked kinds."""
        members = (self.kinds.best_member(kind) for kind in islice(self.kinds, most // 4))
        parked = [entry.uid for entry in members if entry is not None]
        retries = self._retries.first(most // 4)
        return [*self._fresh.first(most - len(retries) - len(parked)), *retries, *parked]

    def entry(self, uid: PodUid) -> QueuedPod | None:
        """A pod's entry, for readers; None for an unknown pod."""
        return self._entries.get(uid)

    def first(self, place: QueuePlace, most: int) -> list[PodUid]:
        """This many pods at most of a lane, `FRESH` or `RETRY`, by rank."""
        return (self._fresh if place is QueuePlace.FRESH else self._retries).first(most)

    def put(self, uid: PodUid, priority: int, now_s: float, *, tried: bool = False) -> None:
        """Add a pod, or note that it changed. A changed pod that was tried before is tried again soon.

        Args:
            uid: the pod.
            priority: `spec.priority`; higher goes first.
            now_s: the time.
            tried: a new pod has been tried before, by another placer: it is not fresh.
        """
        entry = self._entries.get(uid)
        if entry is None:
            entry = self._entries[uid] = QueuedPod(uid, priority, next(self._numbers), ready_s=now_s)
            self._counts[QueuePlace.FRESH] += 1
            if tried:
                self._activate(entry, now_s)
            else:
                self._fresh.push(entry)
            return
        entry.priority = priority
        match entry.place:
            case QueuePlace.TAKEN | QueuePlace.PLACED:
                entry.is_outdated = True
                self._leave_kind(entry, now_s)
            case QueuePlace.FRESH:
                self._fresh.push(entry)  # it keeps its number
            case _:
                self._leave_kind(entry, now_s)
                self._activate(entry, now_s)

    def note_tried(self, uid: PodUid, now_s: float) -> None:
        """Note that another placer, which leads or did so, has tried a pod: it is not fresh here any more."""
        entry = self._entries.get(uid)
        if entry is not None and entry.place is QueuePlace.FRESH:
            self._activate(entry, now_s)

    def discard(self, uid: PodUid, now_s: float) -> None:
        """Remove a pod that is bound, gone, or no longer ours. An unknown pod is no error."""
        entry = self._entries.pop(uid, None)
        if entry is not None:
            self._counts[entry.place] -= 1
            self._leave_kind(entry, now_s)
            entry.place = QueuePlace.GIVEN_UP  # outdated timers do not find it

    def take(self, now_s: float) -> Try | Probe | None:
        """The work to do now, or None.

        After a `Try` call `discard`, `again`, `at_once`, `park`, `join`, `placed` or `give_up`. After a `Probe` call
        `probed`.
        """
        self._allowance.charge(now_s)
        self._ripen(now_s)
        fresh = self._fresh.head()
        if fresh is None:
            self._allowance.refill()
        work = self._probe_or_retry(fresh, now_s) if self._allowance.is_left else None
        if work is not None:
            self._allowance.begin(is_fresh=False)
        elif fresh is not None:
            self._allowance.begin(is_fresh=True)
            work = self._tried(fresh, now_s)
        return work

    def placed(self, uid: PodUid, now_s: float) -> None:
        """Note that a pod has a place and is being bound; the next pod of its kind is tried."""
        entry = self._entries.get(uid)
        if entry is not None:
            if entry.kind is not None:
                entry.kind.refusals = 0
            self._move(entry, QueuePlace.PLACED)
            self._leave_kind(entry, now_s)

    def again(self, uid: PodUid, now_s: float, pause_s: float | None = None) -> None:
        """Try a pod again after its backoff: the attempt failed for a reason that may pass by itself.

        With `pause_s`, it is tried after that pause: there was no attempt.
        """
        entry = self._entries.get(uid)
        if entry is not None:
            self._move(entry, QueuePlace.BACKOFF)
            if pause_s is not None:
                entry.attempts -= 1
            entry.due_s = now_s + (backoff_s(entry.attempts) if pause_s is None else pause_s)
            self._timers.set(entry)

    def at_once(self, uid: PodUid, now_s: float) -> None:
        """Try a pod again without a pause: the last attempt was overtaken by a change."""
        entry = self._entries.get(uid)
        if entry is not None:
            self._activate(entry, now_s)

    def refusal(self, kind: Hashable) -> KindRefusal | None:
        """The refusal of a kind that is in force, and that no change may have lifted; or None."""
        known = self.kinds.get(kind)
        return known.refusal if known is not None and known.is_refused else None

    def join(self, uid: PodUid, kind: Hashable, now_s: float) -> None:
        """Park a pod by its kind's `refusal`, without a decision of its own."""
        entry = self._entries.get(uid)
        if entry is None:
            return
        if entry.is_outdated:
            self._activate(entry, now_s)
        else:
            known = self.kinds.get(kind)
            assert known is not None, "the caller has read this kind's refusal"
            self._add(known, entry, now_s)

    def park(self, uid: PodUid, kind: Hashable, refusal: KindRefusal, now_s: float) -> None:
        """Park a pod that fits nowhere at this moment, with its kind; a pod that changed meanwhile backs off.

        Args:
            uid: the pod.
            kind: equal for pods that get the same answer.
            refusal: the refusal that the kind shares. It knows all gains so far.
            now_s: the time.
        """
        entry = self._entries.get(uid)
        if entry is None:
            return
        if entry.is_outdated:
            self.again(uid, now_s)
            return
        known = self.kinds.get(kind) or self.kinds.add(PodKind(kind, next(self._numbers)))
        self._recall_front(known, uid)
        self._add(known, entry, now_s)
        known.refusals += 1
        known.refused_s = now_s
        self._parking.park(known, refusal)
        known.due_s = now_s + PARKED_AT_MOST_S * (1 + self._spread()) / 2
        self._timers.set(known)

    def give_up(self, uid: PodUid, now_s: float) -> None:
        """Stop trying a pod that only its own change can help: it is malformed, or asks for the impossible."""
        entry = self._entries.get(uid)
        if entry is None:
            return
        self._leave_kind(entry, now_s)
        if entry.is_outdated:
            self._activate(entry, now_s)
        else:
            self._move(entry, QueuePlace.GIVEN_UP)

    def gained(self, node: NodeName, gain: Gain, now_s: float) -> None:
        """Plan probes of the parked kinds that a changed node could take now."""
        for kind in self._parking.note(node, gain):
            self._wake(kind, now_s)

    def probed(self, probe: Probe, causes: Cause, now_s: float, *, is_news: bool = False) -> None:
        """Note a probe's result.

        Args:
            probe: the probe.
            causes: the causes that keep the pod from the node; none if the node could take it.
            now_s: the time.
            is_news: a reason was found that the kind's refusal does not name, so that its text is outdated.
        """
        if self._parking.probed(probe.kind, probe.node, causes):
            if causes == NOTHING:
                self._parking.leave(probe.kind)
                self._fitting = self._promote(probe.kind, now_s)
            elif is_news:
                self._wake(probe.kind, now_s)
        if not self._parking.has_probes:
            self._probed_node = None

    def wake(self, causes: Cause, now_s: float) -> None:
        """Try the parked kinds with one of these causes: a change may have lifted them on any node."""
        for kind in self._parking.with_cause(causes):
            self._wake(kind, now_s)

    def wake_kind(self, kind: Hashable, now_s: float) -> None:
        """Try a parked kind again after its backoff: its refusal may not last."""
        known = self.kinds.get(kind)
        if known is not None and known.parked:
            self._wake(known, now_s)

    def wake_for(self, topics: Collection[Hashable], now_s: float) -> None:
        """Try the parked kinds that rules about pods keep out, and that a change of these topics may help."""
        for kind in self._parking.waiting_for(topics):
            self._wake(kind, now_s)

    def nudge(self, uid: PodUid, now_s: float) -> None:
        """Try a parked pod soon: its claims changed. A pod that backs off keeps its pause."""
        entry = self._entries.get(uid)
        if entry is not None and entry.place is QueuePlace.PARKED:
            self._leave_kind(entry, now_s)
            self._activate(entry, now_s)

    def reword(self, kind: Hashable, refusal: KindRefusal) -> None:
        """Replace the refusal of a kind by one that holds at this moment; a kind without one stays without."""
        known = self.kinds.get(kind)
        if known is not None and known.parked:
            self._parking.park(known, refusal)

    def due_s(self) -> float | None:
        """The next time at which a pod becomes active by itself, on the clock of `now_s`; None if there is none."""
        return self._timers.due_s()

    def _ripen(self, now_s: float) -> None:
        while (due_s := self.due_s()) is not None and due_s <= now_s:
            thing = self._timers.pop()
            if isinstance(thing, PodKind):
                self._parking.leave(thing)
                self._promote(thing, now_s)
            else:
                self._activate(thing, now_s)

    def _probe_or_retry(self, fresh: QueuedPod | None, now_s: float) -> Try | Probe | None:
        """A probe or a retry. All probes of a node come before the retries, so the highest rank gets its room."""
        fitting, self._fitting = self._fitting, None
        if fitting is not None and fitting.place is QueuePlace.RETRY:
            if fresh is None or fitting.priority >= fresh.priority:
                return self._tried(fitting, now_s)
            self._fitting = fitting  # the fresh pod goes first
            return None
        retry = self._retries.head()
        if retry is not None and fresh is not None and retry.priority < fresh.priority:
            retry = None
        probe = self._parking.next_probe()
        if retry is not None and (probe is None or self._probed_node not in (None, probe[1])):
            self._probed_node = None  # nodes that change all the time leave room for retries
            return self._tried(retry, now_s)
        if probe is None:
            return None
        kind, self._probed_node = probe
        entry = self.kinds.best_member(kind)
        assert entry is not None, "a parked kind has a member"
        return Probe(entry.uid, self._probed_node, kind)

    def _tried(self, entry: QueuedPod, now_s: float) -> Try:
        self._move(entry, QueuePlace.TAKEN)
        entry.attempts += 1
        entry.is_outdated = False
        return Try(entry.uid, max(0.0, now_s - entry.ready_s))

    def _wake(self, kind: PodKind, now_s: float) -> None:
        """Try a kind once its backoff is over, or earlier if a probe shows that it fits."""
        if kind.woken:
            return
        kind.woken = True
        kind.due_s = max(now_s, kind.refused_s + backoff_s(kind.refusals))
        self._timers.set(kind)

    def _promote(self, kind: PodKind, now_s: float) -> QueuedPod | None:
        """Let the first member be tried for all; returns it."""
        entry = self.kinds.best_member(kind)
        if entry is not None:
            kind.waiting -= 1
            kind.front = entry.uid
            self._activate(entry, now_s)
        return entry

    def _recall_front(self, kind: PodKind, uid: PodUid) -> None:
        """Let the pod that was to be tried for all wait again: another pod of its kind was refused just now."""
        front = self._entries.get(kind.front) if kind.front is not None and kind.front != uid else None
        kind.front = None
        if front is not None and front.place is QueuePlace.TAKEN:
            front.kind = None  # the end of its own attempt puts it back
        elif front is not None:
            self._become_member(kind, front)

    def _add(self, kind: PodKind, entry: QueuedPod, now_s: float) -> None:
        if entry.kind is not kind:
            self._leave_kind(entry, now_s)
            entry.kind = kind
        self._become_member(kind, entry)

    def _become_member(self, kind: PodKind, entry: QueuedPod) -> None:
        self._move(entry, QueuePlace.PARKED)
        kind.waiting += 1
        kind.members.push(entry.rank)

    def _leave_kind(self, entry: QueuedPod, now_s: float) -> None:
        kind, entry.kind = entry.kind, None
        if kind is None:
            return
        if kind.front == entry.uid:
            kind.front = None
            self._promote(kind, now_s)
        else:
            kind.waiting -= 1
        if kind.front is None and kind.waiting == 0:
            self._parking.leave(kind)
            self.kinds.remove(kind)

    def _activate(self, entry: QueuedPod, now_s: float) -> None:
        self._move(entry, QueuePlace.RETRY)
        entry.number, entry.ready_s = next(self._numbers), now_s
        self._retries.push(entry)

    def _move(self, entry: QueuedPod, place: QueuePlace) -> None:
        self._counts[entry.place] -= 1
        self._counts[place] += 1
        entry.place = place
