"""The state of each node by the stream, and the alerts that follow.

    alert                        begins                                     ends
    gpu.health (two severities)  the newest report has the GPU so           the newest report has it so no more
    gpu.pressure                 likewise                                   likewise
    limit.violated               the event                                  a later report: the process is gone, or
                                                                            the container is within its line
    limit.unenforced             the event                                  a later report: the process is gone, or
                                                                            the broker that was away is back
    node.foreign                 the event                                  no such event for `FOREIGN_S`
    node.silent                  no report for three heartbeats             the next report

What always holds: the alerts are a function of each node's newest report, its newest `node.foreign`, and the events
`limit.*` that the stream keeps. So another run that reads the same stream fires the same alerts. A message that
arrives twice, or late, changes nothing. Processes that left a GPU do not come back: their events are forgotten.

Times are of a clock that runs only while NATS is known to work: an outage of NATS makes no node silent, and ends no
alert. `now_s` and `at_s` are seconds of that clock.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

import msgspec

from plimsoll.envelope import CloudEvent, decode_event, decode_report, event_type
from plimsoll.events import SILENT_HEARTBEATS, Foreign, Limit, NodeState, Task
from plimsoll.gpu_events import HealthClass
from plimsoll.ids import ContainerName, GpuUuid, NodeName, PodUid
from plimsoll.part.errors import InputError
from plimsoll_alerts.core import texts
from plimsoll_alerts.core.alert import Alert, AlertKind, Labels, by_labels

FOREIGN_S: Final = 1500.0
"""Two monitors name each other every 10 minutes while both report. After two and a half such spans the other monitor
counts as gone."""

_VIOLATED, _UNENFORCED, _RESIZED = (
    event_type(f"limit.{what}") for what in ("violated", "unenforced", "resized")
)
_FOREIGN: Final = event_type("node.foreign")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StreamPlace:
    """Where and when a message was found.

    Attributes:
        seq: its number in the stream.
        at_s: when it was stored, or, for one that came while this run listened, when it arrived.
    """

    seq: int
    at_s: float


@dataclass(frozen=True, slots=True)
class _Node:
    state: NodeState
    place: StreamPlace
    is_silent: bool = False


@dataclass(frozen=True, slots=True)
class _Breach:
    """A limit that does not hold, and where the stream says so."""

    kind: AlertKind
    limit: Limit
    since: str
    seq: int


_Key = tuple[AlertKind, NodeName, GpuUuid | None, PodUid, ContainerName, int]


@dataclass(slots=True)
class AlertBook:
    """Everything that the service knows. The reader of the stream fills it.

    Attributes:
        kinds: the alerts that are wanted.
        forget_s: seconds of silence after which a node is forgotten, and its alerts end.
        bus_away_since: RFC 3339; empty while the stream can be read.
    """

    kinds: Collection[AlertKind] = frozenset(AlertKind)
    forget_s: float = 24 * 3600.0
    bus_away_since: str = ""
    _nodes: dict[NodeName, _Node] = field(default_factory=dict)
    _foreign: dict[NodeName, tuple[Foreign, str, StreamPlace]] = field(default_factory=dict)
    _breaches: dict[_Key, _Breach] = field(default_factory=dict)

    def take(self, message: bytes, place: StreamPlace, wall_s: float) -> None:
        """Take in a message.

        Args:
            message: the message as it came from the stream.
            place: see `StreamPlace`.
            wall_s: seconds since 1970, see `plimsoll.envelope.largest_epoch`.

        Raises:
            InputError: the message is damaged; nothing changed.
        """
        event = decode_event(message)
        if event.type in {_VIOLATED, _UNENFORCED, _RESIZED}:
            self._take_limit(event, _data(event, Limit), place)
        elif event.type == _FOREIGN:
            foreign = _data(event, Foreign)
            known = self._foreign.get(foreign.node)
            if known is None or known[2].seq < place.seq:
                self._foreign[foreign.node] = (foreign, event.time, place)
        else:
            self._take_report(decode_report(message, wall_s).state, place)

    def firing(self, now_s: float) -> dict[Labels, Alert]:
        """The alerts that fire now. Silent nodes are noted, and those that were silent for long are forgotten."""
        self._note_silence(now_s)
        alerts = by_labels(one for one in self._alerts() if one.kind in self.kinds)
        return dict(sorted(alerts.items()))

    def _take_report(self, state: NodeState, place: StreamPlace) -> None:
        known = self._nodes.get(state.node)
        if state.is_omitted or (known is not None and known.state.order >= state.order):
            return
        self._nodes[state.node] = _Node(state, place)
        for key, one in list(self._breaches.items()):
            if key[1] == state.node and place.seq > one.seq and _is_gone(one.limit, state):
                del self._breaches[key]

    def _take_limit(self, event: CloudEvent, limit: Limit, place: StreamPlace) -> None:
        if event.type == _RESIZED:
            self._resize(limit, place.seq)
            return
        if limit.gpu is None:  # the process ran without its share until now; it is held again
            return
        kind = AlertKind.VIOLATED if event.type == _VIOLATED else AlertKind.UNENFORCED
        key = (kind, limit.node, limit.gpu, limit.pod, limit.container, limit.pid)
        known, node = self._breaches.get(key), self._nodes.get(limit.node)
        if known is not None and known.seq >= place.seq:
            return
        if node is None or place.seq > node.place.seq or not _is_gone(limit, node.state):
            self._breaches[key] = _Breach(kind, limit, event.time, place.seq)

    def _resize(self, resized: Limit, seq: int) -> None:
        about = (resized.node, resized.gpu, resized.pod, resized.container)
        for key, one in self._breaches.items():
            if key[1:5] == about and one.seq < seq:
                limit = msgspec.structs.replace(one.limit, line_bytes=resized.line_bytes)
                self._breaches[key] = replace(one, limit=limit)

    def _note_silence(self, now_s: float) -> None:
        for name, node in list(self._nodes.items()):
            silent_s = now_s - node.place.at_s
            if silent_s > self.forget_s:
                del self._nodes[name]
            elif not node.is_silent and silent_s > SILENT_HEARTBEATS * node.state.heartbeat_s:
                self._nodes[name] = replace(node, is_silent=True)
        self._foreign = {
            name: known for name, known in self._foreign.items() if now_s - known[2].at_s <= FOREIGN_S
        }
        # A node without any report has been forgotten, or left the stream.
        self._breaches = {key: one for key, one in self._breaches.items() if key[1] in self._nodes}

    def _alerts(self) -> Iterator[Alert]:
        if self.bus_away_since:
            yield texts.bus_away(self.bus_away_since)
        for node in self._nodes.values():
            state = node.state
            if node.is_silent:
                yield texts.silent(state)
            for one in state.health:
                if one.health in {HealthClass.FATAL, HealthClass.DEGRADED}:
                    yield texts.unhealthy(state.node, one)
            for gpu, since in state.short.items():
                yield texts.short(state.node, gpu, since)
        for foreign, since, _ in self._foreign.values():
            yield texts.foreign(foreign, since)
        for breach in self._breaches.values():
            node_of = self._nodes.get(breach.limit.node)
            if node_of is None or breach.seq > node_of.place.seq or _holds(breach, node_of.state):
                make = texts.violated if breach.kind is AlertKind.VIOLATED else texts.unenforced
                yield make(breach.limit, breach.since)


def _data(event: CloudEvent, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(event.data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(
            "data", event.type, f"is damaged ({error})", "publish what its schema says"
        ) from error


def _is_gone(limit: Limit, state: NodeState) -> bool:
    """Whether the processes that an event is about have left the GPU, by a report from after the event."""
    if all(gpu.uuid != limit.gpu for gpu in state.gpus):
        # A GPU that cannot be read says nothing; one that is gone has no process.
        return all(one.gpu != limit.gpu for one in state.health)
    return not _tasks(limit, state)


def _holds(breach: _Breach, state: NodeState) -> bool:
    """Whether a report from after the event still shows what the event says."""
    limit, tasks = breach.limit, _tasks(breach.limit, state)
    if not tasks:  # the GPU cannot be read
        return True
    if breach.kind is AlertKind.UNENFORCED:
        return not limit.broker_away or state.broker_away_since is not None
    return bool(limit.pid) or sum(task.used_bytes for task in tasks) > limit.line_bytes


def _tasks(limit: Limit, state: NodeState) -> list[Task]:
    """The living tasks that an event is about."""
    on_gpu = (task for gpu in state.gpus if gpu.uuid == limit.gpu for task in gpu.tasks)
    about = (limit.pod, limit.container)
    if limit.pid:  # it may be one of those of its container that share an entry
        return [
            task
            for task in on_gpu
            if task.pid == limit.pid or (task.count > 1 and (task.pod, task.container) == about)
        ]
    return [task for task in on_gpu if (task.pod, task.container) == about]
