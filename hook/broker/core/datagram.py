"""Datagrams of the library, taken apart and checked, and the broker's answers to waiting processes.

A tenant may write any datagram, so the broker believes nothing in it that it can check.
"""

import ctypes
from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum
from typing import Final

from plimsoll.broker.pages import (
    KIND_CONTEXT,
    KIND_DENIED,
    KIND_FREED,
    KIND_GRANTED,
    KIND_HELLO,
    KIND_REFUSED,
    KIND_UNKNOWN,
    KIND_WAIT,
    MAX_SLOTS,
    MESSAGE_MAGIC,
    VERSION,
    Message,
)
from plimsoll.ids import GpuUuid
from plimsoll.part.errors import InputError

SIZE: Final = ctypes.sizeof(Message)
_REMEDY: Final = "use the libplimsoll.so that came with this broker"


class DatagramKind(Enum):
    """The sort of a datagram."""

    HELLO = KIND_HELLO
    CONTEXT = KIND_CONTEXT
    DENIED = KIND_DENIED
    UNKNOWN = KIND_UNKNOWN
    WAIT = KIND_WAIT
    FREED = KIND_FREED


_OF_A_GPU: Final = frozenset(
    {DatagramKind.CONTEXT, DatagramKind.DENIED, DatagramKind.WAIT, DatagramKind.FREED}
)


@dataclass(frozen=True, slots=True)
class Datagram:
    """A datagram that passed all checks.

    Attributes:
        gpu: one of the container's GPUs; None for a kind that names no GPU.
        text: the name of a driver function, for `UNKNOWN` and, where the library gives it, `DENIED`.
    """

    kind: DatagramKind
    slot: int
    owner: int
    requested_bytes: int = 0
    used_bytes: int = 0
    line_bytes: int = 0
    gpu: GpuUuid | None = None
    text: str = ""


def decode(data: bytes, gpus: Collection[GpuUuid]) -> Datagram:
    """Take a datagram apart.

    Args:
        data: the bytes as received; a longer datagram was cut to `SIZE` + 1 bytes.
        gpus: the container's GPUs.

    Raises:
        InputError: the datagram is damaged; the error names the field and its value.
    """
    message = _message(data)
    kind = DatagramKind(message.kind)
    return Datagram(
        kind=kind,
        slot=message.slot,
        owner=message.owner,
        requested_bytes=message.requested_bytes,
        used_bytes=message.used_bytes,
        line_bytes=message.line_bytes,
        gpu=_gpu(message.gpu_uuid, gpus) if kind in _OF_A_GPU else None,
        text=_text(message.text, kind),
    )


def reply(gpu: GpuUuid, refusal: str) -> bytes:
    """The answer to a process that asked to wait: to go on or, with a refusal, why it must not wait.

    Args:
        gpu: the GPU of the request.
        refusal: the reason; empty to let the process go on. A reason that is too long for the datagram is cut off.
    """
    kind = KIND_REFUSED if refusal else KIND_GRANTED
    text = refusal.encode("ascii", "replace")[: Message.text.size - 1]
    return bytes(
        Message(magic=MESSAGE_MAGIC, version=VERSION, kind=kind, gpu_uuid=gpu.encode("ascii"), text=text)
    )


def _message(data: bytes) -> Message:
    if len(data) != SIZE:
        raise InputError("length", len(data), f"is not the {SIZE} bytes of a message", _REMEDY)
    message = Message.from_buffer_copy(data)
    _check_head(message)
    return message


def _check_head(message: Message) -> None:
    if message.magic != MESSAGE_MAGIC:
        raise InputError("magic", hex(message.magic), f"is not {MESSAGE_MAGIC:#x}", _REMEDY)
    if message.version != VERSION:
        raise InputError("version", message.version, f"is not {VERSION}", _REMEDY)
    kinds = sorted(kind.value for kind in DatagramKind)
    if message.kind not in kinds:
        raise InputError("kind", message.kind, f"is none of {kinds}", _REMEDY)
    if message.slot >= MAX_SLOTS:
        raise InputError("slot", message.slot, f"is not below {MAX_SLOTS}", _REMEDY)
    if message.owner == 0:
        raise InputError("owner", 0, "owns nothing", _REMEDY)


def _gpu(raw: bytes, gpus: Collection[GpuUuid]) -> GpuUuid:
    gpu = GpuUuid(raw.decode("ascii", "backslashreplace"))
    if gpu not in gpus:
        raise InputError("gpu_uuid", gpu, f"is none of the container's {sorted(gpus)}", _REMEDY)
    return gpu


def _text(raw: bytes, kind: DatagramKind) -> str:
    text = raw.decode("ascii", "backslashreplace")
    if not text.isidentifier() and (text or kind is DatagramKind.UNKNOWN):
        raise InputError("text", text, "is not a function's name", _REMEDY)
    return text
