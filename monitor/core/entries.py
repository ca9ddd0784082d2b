"""Facts as events on the bus: subject, id and body of each.

What always holds: a fact has the same id whenever and by whichever run of the monitor it is told, and a report
has an order (`epoch`, `seq`) of its own. All reports of one turn carry the same state: that of its end.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from monitor.core.lifecycle import Fact, Life
from plimsoll import events
from plimsoll.broker.wire import Announcement
from plimsoll.events import Gpu, Limit, NodeState, Report
from plimsoll.ids import NodeName
from plimsoll.subjects import limit_subject, state_subject, task_subject

_UNWATCHED: Final = (
    "the broker is away: the last memory limits hold, and nobody holds them against NVML;"
    " shares of compute time are not kept"
)


@dataclass(frozen=True, slots=True)
class Entry:
    """An event to be published.

    Attributes:
        id: its `Nats-Msg-Id`.
        carries_state: it tells the node's whole state, and so replaces waiting state events.
        is_state: it tells nothing else, and so may be replaced.
    """

    id: str
    subject: str
    body: bytes
    carries_state: bool = False
    is_state: bool = False


@dataclass(frozen=True, slots=True)
class Moment:
    """What all events of one turn share.

    Attributes:
        seq: that of the last report before this turn; 0 before any.
        time: RFC 3339 in UTC.
    """

    node: NodeName
    boot_id: str
    epoch: int
    seq: int
    time: str
    gpus: tuple[Gpu, ...]

    @property
    def source(self) -> str:
        """Who speaks."""
        return f"/nodes/{self.node}"

    def state(self, seq: int) -> NodeState:
        """The node's state under a number of its own."""
        return NodeState(node=self.node, epoch=self.epoch, seq=seq, time=self.time, gpus=self.gpus)


def task_entries(moment: Moment, facts: Iterable[Fact], first_seq: int) -> tuple[Entry, ...]:
    """One event per fact, numbered from `first_seq`."""
    return tuple(_task_entry(moment, fact, first_seq + index) for index, fact in enumerate(facts))


def state_entry(moment: Moment, seq: int) -> Entry:
    """The state alone."""
    event_id = events.fact_id(moment.boot_id, moment.node, "state", moment.epoch, seq)
    body = events.encode("node.state", event_id, moment.source, moment.time, Report(state=moment.state(seq)))
    return Entry(event_id, state_subject(moment.node), body, carries_state=True, is_state=True)


def limit_entry(moment: Moment, said: Announcement) -> Entry:
    """Something about a container's line, as the broker announced it; a reminder has a number of its own."""
    call, reason = (said.text, "") if said.what == "denied" else ("", said.text)
    data = Limit(
        node=moment.node,
        gpu=said.gpu,
        pod=said.pod,
        container=said.container,
        pid=said.pid,
        requested_bytes=said.requested_bytes,
        used_bytes=said.used_bytes,
        line_bytes=said.line_bytes,
        call=call,
        reason=reason,
        waited_s=said.waited_s,
        share_pct=said.share_pct,
        limit_pct=said.limit_pct,
        used_pct=said.used_pct,
    )
    parts = (said.pid, said.start_ticks, said.gpu, said.what, said.seq, said.time)
    return _limit_entry(moment, said.what, data, said.time, parts)


def unwatched_entry(moment: Moment, life: Life, away_since: str) -> Entry:
    """A hooked task goes on while its broker is away: its line holds as it was, and nobody audits it.

    Args:
        moment: of the turn.
        life: the task.
        away_since: when this run of the monitor missed the broker; it tells this outage from another.
    """
    task = life.task
    assert task.pod is not None
    assert task.container is not None
    data = Limit(
        node=moment.node,
        gpu=task.gpu,
        pod=task.pod,
        container=task.container,
        pid=task.pid,
        used_bytes=task.used_bytes,
        reason=_UNWATCHED,
    )
    parts = (task.pid, task.start_ticks, task.gpu, "unenforced", "away", away_since)
    return _limit_entry(moment, "unenforced", data, moment.time, parts)


def _limit_entry(moment: Moment, what: str, data: Limit, time: str, parts: tuple[object, ...]) -> Entry:
    event_id = events.fact_id(moment.boot_id, *parts)
    body = events.encode(f"limit.{what}", event_id, moment.source, time, data)
    return Entry(event_id, limit_subject(what, moment.node), body)


def _task_entry(moment: Moment, fact: Fact, seq: int) -> Entry:
    task, what = fact.life.task, fact.phase.value
    event_id = events.fact_id(moment.boot_id, task.pid, task.start_ticks, task.gpu, what, fact.ordinal)
    report = Report(state=moment.state(seq), task=task)
    body = events.encode(f"task.{what}", event_id, moment.source, moment.time, report)
    return Entry(event_id, task_subject(what, moment.node), body, carries_state=True)
