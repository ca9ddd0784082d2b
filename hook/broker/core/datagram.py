"""One datagram of the library, taken apart and checked: a tenant writes it, so nothing in it is believed.

And the answers of the broker to those who wait.
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


class Kind(Enum):
    """What a datagram says; the value is the word used in announcements."""

    HELLO = "hello"
    CONTEXT = "context"
    DENIED = "denied"
    UNKNOWN = "unknown"
    WAIT = "wait"
    FREED = "freed"


_KINDS: Final = {
    KIND_HELLO: Kind.HELLO,
    KIND_CONTEXT: Kind.CONTEXT,
    KIND_DENIED: Kind.DENIED,
    KIND_UNKNOWN: Kind.UNKNOWN,
    KIND_WAIT: Kind.WAIT,
    KIND_FREED: Kind.FREED,
}
_OF_A_GPU: Final = frozenset({Kind.CONTEXT, Kind.DENIED, Kind.WAIT, Kind.FREED})


@dataclass(frozen=True, slots=True)
class Datagram:
    """A datagram whose fields hold together.

    Attributes:
        gpu: one of the container's GPUs, or None where the kind names none.
        text: a function's name, for `UNKNOWN` and, where the library gives it, `DENIED`.
    """

    kind: Kind
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
        data: as received; more than `SIZE` bytes were cut to `SIZE` + 1.
        gpus: the container's.

    Raises:
        InputError: it is damaged, with the field and what stood there.
    """
    message = _message(data)
    kind = _KINDS[message.kind]
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
    """What one that asked to wait is told: to go on, or, with a refusal, why it must not wait.

    Args:
        gpu: on which it asked.
        refusal: empty to let it go on; what is past the datagram's room is cut off.
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
    if message.kind not in _KINDS:
        raise InputError("kind", message.kind, f"is none of {sorted(_KINDS)}", _REMEDY)
    if message.slot >= MAX_SLOTS:
        raise InputError("slot", message.slot, f"is not below {MAX_SLOTS}", _REMEDY)
    if message.owner == 0:
        raise InputError("owner", 0, "owns nothing", _REMEDY)


def _gpu(raw: bytes, gpus: Collection[GpuUuid]) -> GpuUuid:
    gpu = GpuUuid(raw.decode("ascii", "backslashreplace"))
    if gpu not in gpus:
        raise InputError("gpu_uuid", gpu, f"is none of the container's {sorted(gpus)}", _REMEDY)
    return gpu


def _text(raw: bytes, kind: Kind) -> str:
    text = raw.decode("ascii", "backslashreplace")
    if not text.isidentifier() and (text or kind is Kind.UNKNOWN):
        raise InputError("text", text, "is not a function's name", _REMEDY)
    return text
