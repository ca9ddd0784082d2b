"""All that was learned of owners: reports go in, and the ledger expects of best-effort pods what comes out.

What always holds:

* A pod that has not loaded yet counts only if it needs more than is expected already. Else the first replica of a
  burst, which holds nothing yet, would let all others seem small.
* The number of owners is bounded. The one whose pods were seen the longest time ago is forgotten first.
* `changed` names each owner whose record differs from the one that `take_changed` gave last, or is gone.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from placer.core.ledger import Ledger
from placer.core.owner_record import (
    EMPTY,
    LONGEST_LOAD_S,
    Expectation,
    OwnerRecord,
    PeakSample,
    expectation,
    merged,
    observe,
    sample_key,
)
from plimsoll.events import NodeState, Phase, Report, Task
from plimsoll.ids import GpuUuid, NodeName, PodUid, ProcessKey

OWNERS_AT_MOST: Final = 10_000
"""Owners whose records are kept, some 10 MiB here and in Redis. Each Job that no CronJob made is a new owner."""

AGAIN_S: Final = 3600.0
"""Seconds after which a pod that goes on counts as seen anew: a twenty-fourth of the half-life. So a service that
runs for weeks does not age, and one write in an hour is enough for it."""

BEGUN_AT_MOST: Final = 10_000
"""Tasks that are remembered while they load, some 3 MiB; the one that began first is dropped first."""

SEEN_AT_MOST: Final = 50_000
"""Pods on GPUs whose last sample is remembered, some 10 MiB. A dropped observation is made again, with the same
content and a new age."""

_TaskKey = tuple[NodeName, ProcessKey, GpuUuid]
_PodKey = tuple[PodUid, GpuUuid]


@dataclass(frozen=True, slots=True)
class _Held:
    peak_bytes: int
    has_settled: bool  # all of the pod's tasks there have loaded


class Learned:
    """The records of all owners. Not thread-safe: one event loop owns it."""

    def __init__(self, ledger: Ledger, owners_at_most: int = OWNERS_AT_MOST) -> None:
        """Learn for the pods of this ledger, which also knows their owners."""
        self._ledger = ledger
        self._owners_at_most = owners_at_most
        self._records: OrderedDict[str, OwnerRecord] = OrderedDict()
        self._changed: set[str] = set()
        self._begun: OrderedDict[_TaskKey, datetime] = OrderedDict()
        self._seen: OrderedDict[_PodKey, tuple[int, float]] = OrderedDict()

    @property
    def records(self) -> Mapping[str, OwnerRecord]:
        """By owner; the one that was seen last comes last."""
        return self._records

    def expectation(self, owner: str | None, now_s: float) -> Expectation | None:
        """The expected need of an owner's next pod on a GPU; None if nothing was learned of it."""
        record = self._records.get(owner) if owner is not None else None
        return None if record is None else expectation(record, now_s)

    def take_changed(self) -> frozenset[str]:
        """The owners whose records changed or are gone since the last call."""
        changed, self._changed = frozenset(self._changed), set()
        return changed

    def note_changed(self, owners: Collection[str]) -> None:
        """Count owners as changed whose records could not be stored, or that are stored wrong."""
        self._changed.update(owners)

    def observe(self, state: NodeState, now_s: float) -> None:
        """Learn from the tasks that a node has now."""
        for gpu in state.gpus:
            for pod, held in _held(gpu.tasks).items():
                self._take(pod, gpu.uuid, held, now_s)

    def take(self, report: Report, now_s: float) -> None:
        """Learn from the task that an event is about: its load, or its end. The same event again changes nothing."""
        task, state = report.task, report.state
        if task is None or task.pod is None:
            return
        key = (state.node, task.process, task.gpu)
        match task.phase:
            case Phase.STARTED:
                self._begin(key, state.time)
            case Phase.LOADED:
                self._loaded(key, task, task.pod, state.time, now_s)
            case Phase.EXITED:
                self._begun.pop(key, None)
                rest = next(
                    (_held(gpu.tasks).get(task.pod) for gpu in state.gpus if gpu.uuid == task.gpu), None
                )
                beside_bytes = rest.peak_bytes if rest is not None else 0
                self._take(task.pod, task.gpu, _Held(task.peak_bytes + beside_bytes, has_settled=True), now_s)
            case Phase.LOADING:
                pass

    def restore(self, records: Mapping[str, OwnerRecord], now_s: float) -> None:
        """Take in what other placers learned and stored, beside what is known here.

        Owners whose record is then another than the stored one count as changed.
        """
        for owner, stored in records.items():
            both = merged(self._records.get(owner, EMPTY), stored, now_s)
            if both != stored or not both.samples:
                self._changed.add(owner)
            if both.samples:
                self._records[owner] = both
                self._expect(owner, now_s)
        for owner in sorted(self._records, key=lambda one: self._records[one].newest_s):
            self._records.move_to_end(owner)
        self._bound()

    def forget_old(self, now_s: float) -> None:
        """Forget the owners that were not seen for `FORGET_S`."""
        for owner in [one for one, record in self._records.items() if expectation(record, now_s) is None]:
            self._forget(owner)

    def _begin(self, key: _TaskKey, time: str) -> None:
        began = _moment(time)
        if began is not None and key not in self._begun:
            self._begun[key] = began
            if len(self._begun) > BEGUN_AT_MOST:
                self._begun.popitem(last=False)

    def _loaded(self, key: _TaskKey, task: Task, pod: PodUid, time: str, now_s: float) -> None:
        """Learn a load's time: both moments are of the node's own clock. A reload has no beginning, and no time."""
        began, ended = self._begun.pop(key, None), _moment(time)
        owner = self._ledger.owner(pod)
        if began is None or ended is None or owner is None or not task.peak_bytes:
            return
        load_s = (ended - began).total_seconds()
        if 0 <= load_s <= LONGEST_LOAD_S:
            self._put(
                owner, PeakSample(sample_key(pod, task.gpu), task.peak_bytes, now_s, round(load_s, 3)), now_s
            )

    def _take(self, pod: PodUid, gpu: GpuUuid, held: _Held, now_s: float) -> None:
        owner = self._ledger.owner(pod)
        if owner is None or held.peak_bytes <= 0:
            return
        if not held.has_settled and held.peak_bytes <= self._ledger.best_effort_bytes(owner):
            return
        seen_bytes, seen_s = self._seen.get((pod, gpu), (0, 0.0))
        if owner in self._records and held.peak_bytes <= seen_bytes and abs(now_s - seen_s) < AGAIN_S:
            self._records.move_to_end(owner)
            return
        self._seen[pod, gpu] = (max(held.peak_bytes, seen_bytes), now_s)
        self._seen.move_to_end((pod, gpu))
        if len(self._seen) > SEEN_AT_MOST:
            self._seen.popitem(last=False)
        self._put(owner, PeakSample(sample_key(pod, gpu), held.peak_bytes, now_s), now_s)

    def _put(self, owner: str, sample: PeakSample, now_s: float) -> None:
        known = self._records.get(owner, EMPTY)
        record = observe(known, sample, now_s)
        if record == known:
            return
        self._records[owner] = record
        self._records.move_to_end(owner)
        self._changed.add(owner)
        self._expect(owner, now_s)
        self._bound()

    def _expect(self, owner: str, now_s: float) -> None:
        found = expectation(self._records[owner], now_s)
        self._ledger.expect(owner, None if found is None else found.peak_bytes)

    def _bound(self) -> None:
        while len(self._records) > self._owners_at_most:
            self._forget(next(iter(self._records)))

    def _forget(self, owner: str) -> None:
        del self._records[owner]
        self._changed.add(owner)
        self._ledger.expect(owner, None)


def _held(tasks: tuple[Task, ...]) -> dict[PodUid, _Held]:
    """The most that each pod's tasks on one GPU hold together."""
    found: defaultdict[PodUid, list[Task]] = defaultdict(list)
    for task in tasks:
        if task.pod is not None:
            found[task.pod].append(task)
    return {
        pod: _Held(sum(one.peak_bytes for one in of), all(one.phase is Phase.LOADED for one in of))
        for pod, of in found.items()
    }


def _moment(time: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(time)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None
