"""The events on the bus: CloudEvents 1.0, structured JSON, each complete enough to act on alone.

A task or state event carries the node's whole state at that moment. So a reader can rescore the node by one event,
and can drop a late one. Order within a node is the pair (`epoch`, `seq`). `id` is also the message's `Nats-Msg-Id`:
the same fact has the same id, so an event published twice is stored once. docs/events.md says what subscribers may
rely on, and docs/events/ has the schemas.
"""

import enum
import hashlib
import re
import time
from typing import Final

import msgspec
from msgspec import Struct

from plimsoll.gpu_events import GpuHealth, HealthChange, NodeInfo, Pressure
from plimsoll.ids import (
    NODE_PATTERN,
    UUID_PATTERN,
    ContainerName,
    GpuUuid,
    NodeName,
    PodUid,
    ProcessKey,
)
from plimsoll.part.errors import InputError
from plimsoll.part.times import check_time

TYPE_PREFIX: Final = "dev.plimsoll."

SLOWEST_HEARTBEAT_S: Final = 3600.0
"""The slowest heartbeat of a monitor, in seconds; readers may forget a node that is silent for longer."""

LIMIT_EVENTS: Final = frozenset({"violated", "unenforced", "denied", "paused", "resumed", "resized", "unmet"})
"""The `<what>` of `limit.<what>` events; a broker's announcement of the same name becomes such an event."""

LARGEST: Final = 2**53
"""The greatest number in an event: JSON readers round greater ones, and our floats would lose digits."""

LONGEST_MODEL: Final = 95
"""The most characters of a GPU's model, as in NVML."""

LARGEST_RATIO: Final = 10.0
"""The most bytes that a node may promise per usable byte."""

# A stray byte in a JSON string and thousands of nested brackets raise errors other than MsgspecError.
_UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class Phase(enum.Enum):
    """The phases of a task's life (Kang et al. 2024, §II.B)."""

    STARTED = "started"  # on a GPU; its memory has not risen yet
    LOADING = "loading"  # its memory is rising
    LOADED = "loaded"  # its memory rose and then stood still: the input is loaded
    EXITED = "exited"


class Task(Struct, frozen=True, kw_only=True):
    """A process on one GPU.

    Attributes:
        pid: as the host sees it.
        start_ticks: the process's start time in clock ticks since boot; with `pid`, unique on a machine.
        used_bytes: GPU memory held now, by NVML.
        peak_bytes: the largest `used_bytes` so far.
        pod, container: the process's owner; None for a process that belongs to no known pod.
    """

    pid: int
    start_ticks: int
    gpu: GpuUuid
    phase: Phase
    used_bytes: int
    peak_bytes: int
    pod: PodUid | None = None
    container: ContainerName | None = None

    @property
    def process(self) -> ProcessKey:
        """The process as one identifier."""
        return ProcessKey(self.pid, self.start_ticks)


class Gpu(Struct, frozen=True, kw_only=True):
    """A GPU at one moment.

    Attributes:
        index: NVML's; a MIG instance has that of its card.
        usable_bytes: NVML's total less what the driver reserves for itself.
        used_bytes: held by all processes together, at most `usable_bytes`.
        idle_pct: decayed average of idle time, 0 (always busy) to 100 (always idle). The driver measures no
            utilisation in MIG mode, so a MIG instance has 100.
        overcommit_ratio: bytes that may be promised per usable byte; above 0, at most `LARGEST_RATIO`.
        tasks: every process on the GPU that has not exited.
        mig_parent: for a MIG instance, the card that it is a part of; None for a whole GPU.
    """

    uuid: GpuUuid
    index: int
    model: str
    usable_bytes: int
    used_bytes: int
    idle_pct: float
    overcommit_ratio: float = 1.0
    tasks: tuple[Task, ...] = ()
    mig_parent: GpuUuid | None = None


class NodeState(Struct, frozen=True, kw_only=True):
    """All GPUs of one node at one moment.

    Attributes:
        epoch: one more at each start of the monitor, kept on the node's disk; never falls. At most
            `largest_epoch`.
        seq: one more with each report of one epoch, from 1.
        time: when the GPUs were sampled, RFC 3339 in UTC.
        heartbeat_s: the longest time until the monitor's next report, in seconds; above 0, at most
            `SLOWEST_HEARTBEAT_S`. Monitors of earlier versions do not report it, and count as the slowest.
        health: the GPUs that are not healthy. One that NVML cannot read is here, and not in `gpus`.
        short: the GPUs whose free memory is short (`gpu.pressure`), and since when, RFC 3339 in UTC.
        broker_away_since: when this node's broker went away, RFC 3339 in UTC; None while it is there.
    """

    node: NodeName
    epoch: int
    seq: int
    time: str
    gpus: tuple[Gpu, ...]
    heartbeat_s: float = SLOWEST_HEARTBEAT_S
    health: tuple[GpuHealth, ...] = ()
    short: dict[GpuUuid, str] = {}
    broker_away_since: str | None = None

    @property
    def order(self) -> tuple[int, int]:
        """(`epoch`, `seq`): the newer state has the greater pair."""
        return (self.epoch, self.seq)


class Report(Struct, frozen=True, kw_only=True):
    """Data of a task or state event: the node's state, and the task that the event is about."""

    state: NodeState
    task: Task | None = None


class Limit(Struct, frozen=True, kw_only=True):
    """Data of every `limit.<what>` event.

    Attributes:
        pid: as the host sees it; 0 where the event is about the container as a whole.
        requested_bytes: size of the allocation that was refused or waits; 0 where there is none.
        used_bytes: memory that the container holds on the GPU; by NVML for `violated` and `unenforced`, else by its
            counts.
        line_bytes: the container's line on the GPU; for `resized` the new one.
        call: name of the driver's function; empty where it is not known.
        reason: a text for people.
        waited_s: for `resumed`, how long the allocation waited; 0 otherwise.
        share_pct: for `resized` and `unmet`, the guaranteed compute time, in percent of the GPU; 0 otherwise.
        limit_pct: for `resized`, the most compute time, in percent of the GPU; 0 otherwise.
        used_pct: in percent of the GPU's time. For `unmet`, the container's time while it wanted more. For
            `violated`, the process's time by NVML, where that is far more than its page says. 0 otherwise.
        broker_away: for `unenforced`, the cause is that the node's broker is away; it ends once the broker is back.
    """

    node: NodeName
    gpu: GpuUuid | None
    pod: PodUid
    container: ContainerName
    pid: int = 0
    requested_bytes: int = 0
    used_bytes: int = 0
    line_bytes: int = 0
    call: str = ""
    reason: str = ""
    waited_s: float = 0.0
    share_pct: int = 0
    limit_pct: int = 0
    used_pct: float = 0.0
    broker_away: bool = False


class Foreign(Struct, frozen=True, kw_only=True):
    """Data of `node.foreign`: another monitor reports under this node's name.

    Readers take the reports of the greater epoch, and drop the others as late.

    Attributes:
        epoch: of the monitor that publishes this event.
        gpus: the GPUs of that monitor's node, by UUID.
        foreign_epoch: of the other monitor's reports.
        foreign_gpus: the GPUs in them, by UUID: the machine on which the other monitor runs has these.
        reason: a text for people.
    """

    node: NodeName
    epoch: int
    gpus: tuple[GpuUuid, ...]
    foreign_epoch: int
    foreign_gpus: tuple[GpuUuid, ...]
    reason: str = ""


class Placement(Struct, frozen=True, kw_only=True):
    """Data of `pod.placed`, `pod.unplaceable`, `pod.foreign` and `pod.preempted`: the decision and its reason.

    Attributes:
        node: for `foreign`, the node that somebody else bound the pod to; for `preempted`, the node where it ends;
            None for `unplaceable`.
        gpus: by container; empty unless the pod was placed.
        reason: a text for people: why the pod waits, is foreign, or ends; empty for `placed`.
    """

    namespace: str
    name: str
    pod: PodUid
    node: NodeName | None = None
    gpus: dict[str, list[str]] = {}
    policy: str = ""
    score: float | None = None
    reason: str = ""


class PoolChange(Struct, frozen=True, kw_only=True):
    """Data of `pool.acquired`, `pool.released` and `pool.lost`.

    Attributes:
        gpu: the GPU that joined or left the pool of shared GPUs.
        reservation: the uid of the reservation pod that took the GPU from NVIDIA's device plugin.
        pods: the uids of the pods that are booked on the GPU; for `lost`, they run on without a reservation.
    """

    node: NodeName
    gpu: GpuUuid
    reservation: PodUid
    pods: tuple[PodUid, ...] = ()


class CloudEvent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The envelope, in CloudEvents 1.0's structured JSON mode.

    An attribute that is absent is left out: CloudEvents knows no null. Earlier versions wrote null, which is read as
    absent.

    Attributes:
        subject: the GPU of an event about a task or a GPU, by UUID.
        sequence: of an event that carries a node's state, see `sequence`.
    """

    specversion: str
    id: str
    source: str
    type: str
    time: str
    data: msgspec.Raw
    subject: str | None = None
    datacontenttype: str | None = None
    sequence: str | None = None


Data = Report | Limit | Placement | PoolChange | Foreign | HealthChange | Pressure | NodeInfo


def event_type(what: str) -> str:
    """`task.loaded` → `dev.plimsoll.task.loaded.v1`."""
    return f"{TYPE_PREFIX}{what}.v1"


def encode(what: str, event_id: str, source: str, time: str, data: Data) -> bytes:
    """An event as published.

    Args:
        what: the middle of the subject: `task.started`, `limit.denied`, …
        event_id: the fact's id, see `fact_id`.
        source: `/nodes/<name>` or `/placer`.
        time: RFC 3339 in UTC.
        data: the event's data.
    """
    event = CloudEvent(
        specversion="1.0",
        id=event_id,
        source=source,
        type=event_type(what),
        time=time,
        data=msgspec.Raw(msgspec.json.encode(data)),
        subject=_gpu_of(data),
        datacontenttype="application/json",
        sequence=sequence(data.state.epoch, data.state.seq) if isinstance(data, Report) else None,
    )
    return msgspec.json.encode(event)


def _gpu_of(data: Data) -> GpuUuid | None:
    match data:
        case Report(task=Task(gpu=gpu)) | HealthChange(gpu=gpu) | Pressure(gpu=gpu):
            return gpu
        case _:
            return None


def sequence(epoch: int, seq: int) -> str:
    """The `sequence` of a report, after CloudEvents' extension of this name.

    Both numbers have as many digits as `LARGEST`, so that the texts of one source sort as the pairs do. Earlier
    versions wrote `3.000000000007`: readers that want numbers split at the dot, which reads both forms.
    """
    return f"{epoch:016d}.{seq:016d}"


def decode_event(message: bytes) -> CloudEvent:
    """The envelope of a message.

    Raises:
        InputError: the message is damaged; the error names the fault. Terminate the message: a retry cannot help.
    """
    try:
        event = msgspec.json.decode(message, type=CloudEvent)
    except _UNREADABLE as error:
        raise _damaged(message, error) from error
    if event.specversion != "1.0":
        raise InputError(
            "specversion", event.specversion, "is not CloudEvents 1.0", "publish specversion 1.0"
        )
    return event


def largest_epoch(now_s: float) -> int:
    """The greatest epoch that a monitor can have at this time: one start per second since 1970.

    A report with a greater epoch is refused. Else a single hostile report could have the greatest epoch there is, and
    no later report of the node would count. By this bound, an epoch that passes any other exists a second later.

    Args:
        now_s: the time in seconds since 1970.
    """
    return int(now_s)


def decode_report(message: bytes, now_s: float | None = None) -> Report:
    """The report in a task or state event.

    Args:
        message: as it came from the bus.
        now_s: the time in seconds since 1970, see `largest_epoch`; None: now.

    Raises:
        InputError: the message is damaged, or of another type, or no monitor can have sent it.
    """
    event = decode_event(message)
    try:
        report = msgspec.json.decode(event.data, type=Report)
    except _UNREADABLE as error:
        raise _damaged(message, error) from error
    _check_report(report, time.time() if now_s is None else now_s)
    return report


def fact_id(*parts: object) -> str:
    """A stable id for a fact: 32 hex digits of SHA-256 over its parts.

    The parts of a task event are the machine's boot id, pid, start ticks, GPU, phase and ordinal. So the same fact
    has the same id after a restart, and a second `loaded` has another one.
    """
    return hashlib.sha256("\x1f".join(str(part) for part in parts).encode()).hexdigest()[:32]


def _check_report(report: Report, now_s: float) -> None:
    state = report.state
    if not re.fullmatch(NODE_PATTERN, state.node):
        remedy = "give the node's name in Kubernetes: 1 to 253 lower-case letters, digits, '-' and '.'"
        raise InputError("state.node", state.node, "is no name of a node", remedy)
    _check_range("state.epoch", state.epoch, 1, largest_epoch(now_s))
    _check_range("state.seq", state.seq, 1, LARGEST)
    check_time("state.time", state.time, now_s)
    if not 0 < state.heartbeat_s <= SLOWEST_HEARTBEAT_S:
        remedy = f"give more than 0, at most {SLOWEST_HEARTBEAT_S:g}"
        raise InputError("state.heartbeat_s", state.heartbeat_s, "cannot be", remedy)
    uuids = [gpu.uuid for gpu in state.gpus]
    for place, gpu in enumerate(state.gpus):
        _check_names(gpu, place)
        name = f"state.gpus[{gpu.uuid}]"
        if gpu.uuid in uuids[:place]:
            raise InputError(f"{name}.uuid", gpu.uuid, "stands twice", "report each GPU once")
        if gpu.mig_parent is not None:
            _check_uuid(f"{name}.mig_parent", gpu.mig_parent)
        _check_range(f"{name}.usable_bytes", gpu.usable_bytes, 1, LARGEST)
        _check_range(f"{name}.used_bytes", gpu.used_bytes, 0, LARGEST)
        _check_range(f"{name}.idle_pct", gpu.idle_pct, 0, 100)
        _check_ratio(f"{name}.overcommit_ratio", gpu.overcommit_ratio)
        for task in gpu.tasks:
            _check_range(f"{name}.tasks[{task.pid}].used_bytes", task.used_bytes, 0, LARGEST)
            _check_range(f"{name}.tasks[{task.pid}].peak_bytes", task.peak_bytes, 0, LARGEST)
    for place, one in enumerate(state.health):
        _check_uuid(f"state.health[{place}].gpu", one.gpu)


def _check_names(gpu: Gpu, place: int) -> None:
    _check_uuid(f"state.gpus[{place}].uuid", gpu.uuid)
    if not (0 < len(gpu.model) <= LONGEST_MODEL and gpu.model.isprintable() and "," not in gpu.model):
        remedy = f"give NVML's name: 1 to {LONGEST_MODEL} printable characters, no comma"
        raise InputError(f"state.gpus[{place}].model", gpu.model, "is no model of a GPU", remedy)


def _check_uuid(field_name: str, uuid: str) -> None:
    if not re.fullmatch(UUID_PATTERN, uuid):
        remedy = "give NVML's UUID: 1 to 95 letters, digits, '-', '_', '.' and '/'"
        raise InputError(field_name, uuid, "is no UUID of a GPU", remedy)


def _check_range(field_name: str, value: float, least: int, most: int) -> None:
    if not least <= value <= most:
        raise InputError(field_name, value, "cannot be", f"give {least} to {most}")


def _check_ratio(field_name: str, value: float) -> None:
    if not 0 < value <= LARGEST_RATIO:
        raise InputError(field_name, value, "cannot be", f"give more than 0, at most {LARGEST_RATIO:g}")


def _damaged(message: bytes, error: Exception) -> InputError:
    start = message[:80].decode("utf-8", "replace")
    return InputError("event", start, f"is damaged ({error})", "publish CloudEvents 1.0 in structured JSON")
