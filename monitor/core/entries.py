"""Facts as events for the outbox: subject, id and body of each.

What always holds: a fact has the same id, whenever and by whichever run of the monitor it is published. Each state
that is sent has an order (`epoch`, `seq`) of its own. All reports of one round carry the same state, that of the
round's end; where there are many, only the last report carries it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import msgspec

from monitor.core.conditions import PressureChange
from monitor.core.lifecycle import Fact, TaskLife
from plimsoll import envelope
from plimsoll.broker.announcements import Denied, LimitAnnouncement
from plimsoll.bus.subjects import (
    foreign_subject,
    gpu_subject,
    info_subject,
    limit_subject,
    state_subject,
    task_subject,
)
from plimsoll.events import (
    SLOWEST_HEARTBEAT_S,
    TASKS_AT_MOST,
    Data,
    Foreign,
    Gpu,
    Limit,
    NodeState,
    Report,
)
from plimsoll.gpu_events import GpuHealth, HealthChange, NodeInfo, Pressure
from plimsoll.gpu_health import HealthTransition
from plimsoll.ids import GpuUuid, NodeName

_UNWATCHED: Final = (
    "the broker is away: the last memory limits hold, and are not compared with NVML;"
    " shares of compute time are not kept"
)


@dataclass(frozen=True, slots=True)
class Entry:
    """An event to be published.

    Attributes:
        id: the message's `Nats-Msg-Id`.
        carries_state: the event carries the node's whole state, and so may replace a state event that waits.
        is_state: the event carries nothing else, and so may be replaced.
        limit: the `<what>` of a `limit.<what>` event; empty for any other.
    """

    id: str
    subject: str
    body: bytes
    carries_state: bool = False
    is_state: bool = False
    limit: str = ""


@dataclass(frozen=True, slots=True)
class NodeSnapshot:
    """The node at the end of a round, as all events of the round carry it.

    Attributes:
        boot_id: the machine's boot on which the facts happened.
        seq: the number of the last report before this round; 0 before any.
        time: RFC 3339 in UTC.
        gpus: the node's GPUs at the end of the round.
        heartbeat_s: the longest time until the next report, in seconds.
        health: the GPUs that are not healthy.
        short: the GPUs whose free memory is short, and since when.
        broker_away_since: when the broker went away; None while it is there.
    """

    node: NodeName
    boot_id: str
    epoch: int
    seq: int
    time: str
    gpus: tuple[Gpu, ...]
    heartbeat_s: float = SLOWEST_HEARTBEAT_S
    health: tuple[GpuHealth, ...] = ()
    short: Mapping[GpuUuid, str] = field(default_factory=dict)
    broker_away_since: str | None = None

    @property
    def source(self) -> str:
        """The events' CloudEvents source."""
        return f"/nodes/{self.node}"

    def state(self, seq: int) -> NodeState:
        """The node's state, numbered `seq`."""
        return NodeState(
            node=self.node,
            epoch=self.epoch,
            seq=seq,
            time=self.time,
            gpus=self.gpus,
            heartbeat_s=self.heartbeat_s,
            health=self.health,
            short=dict(self.short),
            broker_away_since=self.broker_away_since,
        )

    def no_state(self, seq: int) -> NodeState:
        """The form without GPUs that stands for a state that is left out, after the state numbered `seq`."""
        return NodeState(
            node=self.node,
            epoch=self.epoch,
            seq=seq,
            time=self.time,
            gpus=(),
            heartbeat_s=self.heartbeat_s,
            omitted=True,
        )


def task_entries(facts: Sequence[tuple[NodeSnapshot, Fact]], seq: int) -> tuple[Entry, ...]:
    """An event per fact.

    Where the states would have too many rows together, the last event alone carries one. The others repeat the number
    of the state before, so that readers which take newer states alone keep what they have. At the start of an epoch
    there is none before; then the first event carries one too.

    Args:
        facts: in order, each with the snapshot of its boot.
        seq: the number of the last state before; 0 before any of this epoch.
    """
    rows = sum(1 + len(gpu.tasks) for snapshot, _ in facts[:1] for gpu in snapshot.gpus)
    entries: list[Entry] = []
    for index, (snapshot, fact) in enumerate(facts):
        is_left_out = len(facts) * rows > TASKS_AT_MOST and seq and index < len(facts) - 1
        seq += 0 if is_left_out else 1
        entries.append(
            _task_entry(snapshot, fact, snapshot.no_state(seq) if is_left_out else snapshot.state(seq))
        )
    return tuple(entries)


def state_entry(snapshot: NodeSnapshot, seq: int) -> Entry:
    """A `node.state` event: the state alone."""
    parts = (snapshot.node, "state", snapshot.epoch, seq)
    entry = _entry(
        snapshot, "node.state", state_subject(snapshot.node), Report(state=snapshot.state(seq)), parts
    )
    return replace(entry, carries_state=True, is_state=True)


def foreign_entry(snapshot: NodeSnapshot, foreign: Foreign) -> Entry:
    """A `node.foreign` event: another monitor reports under this node's name."""
    parts = (foreign.node, "foreign", foreign.epoch, foreign.foreign_epoch, snapshot.time)
    return _entry(snapshot, "node.foreign", foreign_subject(foreign.node), foreign, parts)


def health_entry(snapshot: NodeSnapshot, change: HealthTransition) -> Entry:
    """A `gpu.health` event: a GPU's conditions changed."""
    fields = {name: getattr(change.health, name) for name in change.health.__struct_fields__}
    data = HealthChange(node=snapshot.node, before=change.before, **fields)
    parts = (snapshot.node, "health", data.gpu, snapshot.time)
    return _entry(snapshot, "gpu.health", gpu_subject("health", snapshot.node), data, parts)


def info_entry(snapshot: NodeSnapshot, info: NodeInfo) -> Entry:
    """A `node.info` event: the node's hardware."""
    parts = (snapshot.node, "info", snapshot.time)
    return _entry(snapshot, "node.info", info_subject(snapshot.node), info, parts)


def pressure_entry(snapshot: NodeSnapshot, change: PressureChange) -> Entry:
    """A `gpu.pressure` event: a GPU's free memory became short, or is no longer short."""
    gpu = change.gpu
    data = Pressure(
        node=snapshot.node,
        gpu=gpu.uuid,
        short=change.short,
        since=change.since,
        usable_bytes=gpu.usable_bytes,
        used_bytes=gpu.used_bytes,
        free_bytes=gpu.usable_bytes - gpu.used_bytes,
        limit_bytes=change.limit_bytes,
    )
    parts = (snapshot.node, "pressure", gpu.uuid, snapshot.time)
    return _entry(snapshot, "gpu.pressure", gpu_subject("pressure", snapshot.node), data, parts)


def limit_entry(snapshot: NodeSnapshot, announcement: LimitAnnouncement) -> Entry:
    """A `limit.<what>` event, as the broker announced it.

    A reminder of the same wait is another announcement with another `seq`, so its id differs.
    """
    fields = {"gpu": None, **msgspec.structs.asdict(announcement)}
    text = "call" if isinstance(announcement, Denied) else "reason"
    # Every other field has the same name in the event.
    data = msgspec.convert({**fields, text: announcement.text, "node": snapshot.node}, Limit)
    parts = [fields[name] for name in ("pid", "start_ticks", "gpu", "what", "seq", "time")]
    return _limit_entry(replace(snapshot, time=announcement.time), announcement.what, data, parts)


def unwatched_entry(snapshot: NodeSnapshot, life: TaskLife) -> Entry:
    """A `limit.unenforced` event: a hooked task runs while its broker is away.

    The task's last line holds, and nothing compares its memory with NVML. The time at which this run of the monitor
    lost the broker is part of the id: it distinguishes this outage from another.
    """
    task = life.task
    assert task.pod is not None
    assert task.container is not None
    data = Limit(
        node=snapshot.node,
        gpu=task.gpu,
        pod=task.pod,
        container=task.container,
        pid=task.pid,
        used_bytes=task.used_bytes,
        reason=_UNWATCHED,
        broker_away=True,
    )
    parts = (task.pid, task.start_ticks, task.gpu, "unenforced", "away", snapshot.broker_away_since)
    return _limit_entry(snapshot, "unenforced", data, parts)


def _limit_entry(snapshot: NodeSnapshot, what: str, data: Limit, parts: Iterable[object]) -> Entry:
    entry = _entry(snapshot, f"limit.{what}", limit_subject(what, snapshot.node), data, parts)
    return replace(entry, limit=what)


def _task_entry(snapshot: NodeSnapshot, fact: Fact, state: NodeState) -> Entry:
    task, what = fact.life.task, fact.phase.value
    parts = (task.pid, task.start_ticks, task.gpu, what, fact.ordinal)
    report = Report(state=state, task=task)
    entry = _entry(snapshot, f"task.{what}", task_subject(what, snapshot.node), report, parts)
    return replace(entry, carries_state=not state.is_omitted)


def _entry(snapshot: NodeSnapshot, kind: str, subject: str, data: Data, parts: Iterable[object]) -> Entry:
    """An event of this kind, whose id is a function of the boot and these parts of the fact."""
    event_id = envelope.fact_id(snapshot.boot_id, *parts)
    return Entry(event_id, subject, envelope.encode(kind, event_id, snapshot.source, snapshot.time, data))
