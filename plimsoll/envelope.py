"""The envelope of an event: CloudEvents 1.0 in structured JSON, and the ids of facts.

What always holds: whoever sent a message, `decode_report` gives a report that a monitor can have sent, or an error.
`id` is also the message's `Nats-Msg-Id`: the same fact has the same id, so an event published twice is stored once.
"""

import hashlib
import re
import time
from typing import Final

import msgspec
from msgspec import Struct

from plimsoll.events import (
    LARGEST,
    LARGEST_RATIO,
    LONGEST_MODEL,
    SLOWEST_HEARTBEAT_S,
    Data,
    Gpu,
    Report,
    Task,
)
from plimsoll.gpu_events import HealthChange, Pressure
from plimsoll.ids import (
    NODE_PATTERN,
    UUID_PATTERN,
    GpuUuid,
)
from plimsoll.part.errors import InputError
from plimsoll.part.times import check_time

TYPE_PREFIX: Final = "dev.plimsoll."

# A stray byte in a JSON string and thousands of nested brackets raise errors other than MsgspecError.
_UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class CloudEvent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The envelope, in CloudEvents 1.0's structured JSON mode.

    An attribute that is absent is left out: CloudEvents knows no null.

    Attributes:
        subject: the GPU of an event about a task or a GPU, by UUID.
        sequence: the sequence of an event that carries a node's state, see `sequence`.
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

    Both numbers have as many digits as `LARGEST`, so that the texts of one source sort as the pairs do.
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
        message: the message as it came from the bus.
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
        if gpu.uuid in uuids[:place]:
            raise InputError(f"state.gpus[{gpu.uuid}].uuid", gpu.uuid, "stands twice", "report each GPU once")
        _check_gpu(gpu)
    for place, one in enumerate(state.health):
        _check_uuid(f"state.health[{place}].gpu", one.gpu)


def _check_gpu(gpu: Gpu) -> None:
    name = f"state.gpus[{gpu.uuid}]"
    if gpu.mig_parent is not None:
        _check_uuid(f"{name}.mig_parent", gpu.mig_parent)
    _check_range(f"{name}.usable_bytes", gpu.usable_bytes, 1, LARGEST)
    _check_range(f"{name}.used_bytes", gpu.used_bytes, 0, LARGEST)
    _check_range(f"{name}.idle_pct", gpu.idle_pct, 0, 100)
    if gpu.memory_busy_pct is not None:
        _check_range(f"{name}.memory_busy_pct", gpu.memory_busy_pct, 0, 100)
    _check_ratio(f"{name}.overcommit_ratio", gpu.overcommit_ratio)
    for task in gpu.tasks:
        _check_range(f"{name}.tasks[{task.pid}].used_bytes", task.used_bytes, 0, LARGEST)
        _check_range(f"{name}.tasks[{task.pid}].peak_bytes", task.peak_bytes, 0, LARGEST)
        _check_range(f"{name}.tasks[{task.pid}].processes", task.count, 1, LARGEST)


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
