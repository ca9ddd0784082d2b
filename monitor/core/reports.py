"""The events that a round publishes, and the order numbers of its reports.

What always holds:

* The numbers move on only after a round's events are stored (`stored`). A round that could not be stored is built
  again with the same numbers.
* Numbers have no gap. A state event that was never sent and is replaced leaves its number to the next report.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from monitor.core import node_state
from monitor.core.conditions import ConditionChanges, Short
from monitor.core.entries import (
    Entry,
    NodeSnapshot,
    foreign_entry,
    health_entry,
    info_entry,
    limit_entry,
    pressure_entry,
    state_entry,
    task_entries,
    unwatched_entry,
)
from monitor.core.lifecycle import Fact, TaskKey, TaskLife
from monitor.core.node_state import Thresholds, is_state_due
from monitor.core.observation import Findings
from monitor.core.tasks import ROUND_EVENTS, Tasks
from plimsoll.events import Foreign, Gpu
from plimsoll.gpu_events import GpuHealth, NodeInfo
from plimsoll.ids import NodeName

NO_CHANGES: Final = ConditionChanges()


@dataclass(frozen=True, slots=True)
class Identity:
    """This run of the monitor, on this boot of this machine."""

    boot_id: str
    epoch: int


@dataclass(frozen=True, slots=True)
class _Conditions:
    """The contents of a report besides the GPUs; a change of them is worth a report.

    Attributes:
        health: the GPUs that are not healthy.
        short: the GPUs whose free memory is short, and since when.
        away_since: when the broker went away; None while it is there.
    """

    health: tuple[GpuHealth, ...] = ()
    short: Short = field(default_factory=dict)
    away_since: str | None = None


_NO_CONDITIONS: Final = _Conditions()


@dataclass(frozen=True, slots=True)
class Batch:
    """The events of one round, to be stored together.

    Attributes:
        entries: the entries in the order in which they are published.
        epoch: the epoch of its reports.
        seq: the number of the last state, this batch's included.
        gpus: the state that this batch's reports carry.
        now_s: when it was built, in seconds of the monotonic clock.
        unwatched: the tasks that this batch names as running without a broker.
        replaces_state: the first report has the number of the state event that waits, and replaces it.
        foreign: another monitor that this batch names.
        conditions: what this batch's reports carry besides the GPUs.
        info: the node's hardware, where this batch publishes it.
        has_more: the round left something over, and the next one may begin now.
    """

    entries: tuple[Entry, ...]
    epoch: int
    seq: int
    gpus: tuple[Gpu, ...]
    now_s: float
    unwatched: tuple[TaskKey, ...] = ()
    replaces_state: bool = False
    foreign: Foreign | None = None
    conditions: _Conditions = _NO_CONDITIONS
    info: NodeInfo | None = None
    has_more: bool = False

    @property
    def limit_events(self) -> tuple[str, ...]:
        """The `<what>` of each `limit.<what>` event in this batch."""
        return tuple(entry.limit for entry in self.entries if entry.limit)


class Reports:
    """Builds the events of each round, for one run of the monitor."""

    def __init__(self, node: NodeName, identity: Identity, thresholds: Thresholds) -> None:
        self._node = node
        self._identity = identity
        self._thresholds = thresholds
        # An earlier boot's id, and the exits of its tasks.
        self._former: tuple[str, tuple[Fact, ...]] = ("", ())
        self._seq = 0
        self._last_gpus: tuple[Gpu, ...] | None = None
        self._last_conditions = _Conditions()
        self._last_s = 0.0
        self._info: NodeInfo | None = None  # to be published with the next batch
        self._foreign: Foreign | None = None  # to be published with the next batch
        self._away_since: str | None = None  # None while the broker is there
        self._named_unwatched: frozenset[TaskKey] = frozenset()

    @property
    def epoch(self) -> int:
        """The epoch of the reports that are built now."""
        return self._identity.epoch

    @property
    def last_s(self) -> float:
        """When the last stored report was built, in seconds of the monotonic clock; 0 before any."""
        return self._last_s

    def add_former_boot(self, boot_id: str, exits: tuple[Fact, ...]) -> None:
        """Publish with the next batch that an earlier boot's tasks exited: a reboot ended them."""
        self._former = (boot_id, exits)

    def begin_epoch(self, epoch: int) -> None:
        """Number reports from 1 in a new epoch; the next batch carries the state."""
        self._identity = replace(self._identity, epoch=epoch)
        self._seq, self._last_gpus = 0, None

    def add_foreign(self, foreign: Foreign) -> None:
        """Publish with the next batch that another monitor reports under this node's name."""
        self._foreign = foreign

    def add_info(self, info: NodeInfo) -> None:
        """Publish the node's hardware with the next batch."""
        self._info = info

    def broker_away(self, since: str | None) -> None:
        """The broker is away since this time (RFC 3339), by which outages differ; None while it is there."""
        if since != self._away_since:
            self._away_since, self._named_unwatched = since, frozenset()

    def batch(
        self,
        findings: Findings,
        gpus: tuple[Gpu, ...],
        now_s: float,
        time: str,
        *,
        state_waits: bool = False,
        changes: ConditionChanges = NO_CHANGES,
    ) -> Batch:
        """The events of a round.

        Args:
            findings: the round's result.
            gpus: the node's GPUs at the end of the round.
            now_s: monotonic clock.
            time: the same moment, RFC 3339 in UTC.
            state_waits: the last stored report is a state event that waits, and that nobody has begun to send.
            changes: the changes of the GPUs' conditions.
        """
        conditions = _Conditions(changes.unhealthy, changes.short, self._away_since)
        snapshot = self._snapshot(gpus, time, conditions)
        last_seq = max(self._seq - 1, 0) if state_waits else self._seq
        is_due = conditions != self._last_conditions or is_state_due(
            self._last_gpus, gpus, now_s - self._last_s, self._thresholds
        )
        reports = self._reports(snapshot, findings.facts, last_seq, is_due=is_due)
        others = tuple(limit_entry(snapshot, announcement) for announcement in findings.limits)
        if self._foreign is not None:
            others += (foreign_entry(snapshot, self._foreign),)
        room = max(0, ROUND_EVENTS - len(reports) - len(others))
        unwatched, has_unnamed = self._unwatched(findings.tasks, room)
        others += tuple(unwatched_entry(snapshot, life) for life in unwatched)
        infos = () if self._info is None else (info_entry(snapshot, self._info),)
        return Batch(
            entries=(*infos, *_condition_entries(snapshot, changes), *reports, *others),
            epoch=snapshot.epoch,
            seq=last_seq + sum(entry.carries_state for entry in reports) if reports else self._seq,
            gpus=gpus,
            now_s=now_s,
            unwatched=tuple(life.key for life in unwatched),
            replaces_state=state_waits and bool(reports),
            foreign=self._foreign,
            conditions=conditions,
            info=self._info,
            has_more=findings.has_more or has_unnamed,
        )

    def _snapshot(self, gpus: tuple[Gpu, ...], time: str, conditions: _Conditions) -> NodeSnapshot:
        return NodeSnapshot(
            node=self._node,
            boot_id=self._identity.boot_id,
            epoch=self._identity.epoch,
            seq=self._seq,
            time=time,
            gpus=node_state.bounded(gpus),
            heartbeat_s=self._thresholds.heartbeat_s,
            health=conditions.health,
            short=conditions.short,
            broker_away_since=conditions.away_since,
        )

    def _reports(
        self, snapshot: NodeSnapshot, facts: Iterable[Fact], last_seq: int, *, is_due: bool
    ) -> tuple[Entry, ...]:
        """The events that carry the node's state: one for each fact; without any, the state alone if it is due."""
        boot_id, exits = self._former
        former = replace(snapshot, boot_id=boot_id)
        dated = [(former, fact) for fact in exits] + [(snapshot, fact) for fact in facts]
        if not dated and is_due:
            return (state_entry(snapshot, last_seq + 1),)
        return task_entries(dated, last_seq)

    def _unwatched(self, tasks: Tasks, most: int) -> tuple[tuple[TaskLife, ...], bool]:
        """The tasks to be named now as running without a broker, and whether more are left for the next round."""
        if self._away_since is None:
            return (), False
        unnamed = sorted(tasks.hooked - self._named_unwatched)
        return tuple(tasks.lives[key] for key in unnamed[:most]), len(unnamed) > most

    def stored(self, batch: Batch, lives: Mapping[TaskKey, TaskLife]) -> None:
        """Advance the numbers: `batch` is on disk, and `lives` are the tasks that live now."""
        self._former = ("", ())
        if self._foreign is batch.foreign:
            self._foreign = None
        if self._info is batch.info:
            self._info = None
        # A new epoch may have begun while the batch was being stored; its numbers begin at 1.
        if batch.epoch == self.epoch and (batch.seq > self._seq or batch.replaces_state):
            self._seq, self._last_gpus, self._last_s = batch.seq, batch.gpus, batch.now_s
            self._last_conditions = batch.conditions
        self._named_unwatched = self._named_unwatched.union(batch.unwatched) & lives.keys()


def _condition_entries(snapshot: NodeSnapshot, changes: ConditionChanges) -> tuple[Entry, ...]:
    """The events about GPUs' conditions; they come before the report that carries the conditions."""
    return (
        *(health_entry(snapshot, change) for change in changes.health),
        *(pressure_entry(snapshot, change) for change in changes.pressure),
    )
