"""A container's two directories as the broker lays them out, and an ear on its socket; no broker needed."""

import contextlib
import ctypes
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from plimsoll.broker.datagrams import Message
from plimsoll.broker.pages import (
    COUNTS_DIR_VARIABLE,
    COUNTS_MAGIC,
    COUNTS_NAME,
    EXPORTS_NAME,
    LIMITS_DIR_VARIABLE,
    LIMITS_MAGIC,
    LIMITS_NAME,
    SOCKET_NAME,
    VERSION,
    Counts,
    Exports,
    Limits,
    Slot,
)
from tests.servers.waiting import PATIENCE_S


@dataclass(frozen=True, slots=True)
class Line:
    """The part of one GPU that a container may use."""

    uuid: str
    line_bytes: int
    context_bytes: int = 0
    granted_bytes: int | None = None
    """None: the whole line, as where nothing is overcommitted."""
    excess_bytes: int = 0
    is_wanted: bool = False


def limits_of(lines: list[Line], *, flags: int = 0, generation: int = 2) -> Limits:
    """A valid `limits` file."""
    limits = Limits(
        magic=LIMITS_MAGIC,
        version=VERSION,
        size=ctypes.sizeof(Limits),
        generation=generation,
        gpu_count=len(lines),
        flags=flags,
    )
    for gpu, line in zip(limits.gpus, lines, strict=False):
        gpu.uuid = line.uuid.encode()
        gpu.line_bytes = line.line_bytes
        gpu.granted_bytes = line.line_bytes if line.granted_bytes is None else line.granted_bytes
        gpu.excess_bytes = line.excess_bytes
        gpu.is_wanted = line.is_wanted
        gpu.context_bytes = line.context_bytes
        gpu.limit_pct = 100
    return limits


class Container:
    """One container: `limits` and `counts` in folders of their own."""

    def __init__(self, root: Path) -> None:
        self.limits_dir, self.counts_dir = root / "limits", root / "counts"
        self.limits_dir.mkdir(parents=True)
        self.counts_dir.mkdir()
        head = Counts(magic=COUNTS_MAGIC, version=VERSION, size=ctypes.sizeof(Counts))
        self._counts_path.write_bytes(bytes(head))
        (self.counts_dir / EXPORTS_NAME).write_bytes(bytes(Exports()))

    @property
    def _counts_path(self) -> Path:
        return self.counts_dir / COUNTS_NAME

    @property
    def environment(self) -> dict[str, str]:
        """The environment that brings a process under this container's limits."""
        return {LIMITS_DIR_VARIABLE: str(self.limits_dir), COUNTS_DIR_VARIABLE: str(self.counts_dir)}

    def write(self, content: bytes | Limits) -> None:
        """Put `limits` there as a whole, as when the container is made."""
        draft = self.limits_dir / "draft"
        draft.write_bytes(bytes(content))
        draft.replace(self.limits_dir / LIMITS_NAME)

    def rewrite(self, lines: list[Line], *, flags: int = 0) -> None:
        """Change `limits` in place under its generation, as the broker does while processes run."""
        with (self.limits_dir / LIMITS_NAME).open("r+b", buffering=0) as file:
            generation = Limits.from_buffer_copy(file.read()).generation
            offset = Limits.generation.offset
            for content in (
                limits_of(lines, flags=flags, generation=generation + 1),
                limits_of(lines, flags=flags, generation=generation + 2),
            ):
                file.seek(offset)
                file.write(bytes(content)[offset : offset + 8])
                file.seek(offset + 8)
                file.write(bytes(content)[offset + 8 :])

    def counts(self) -> Counts:
        """A copy of `counts` as it is now."""
        return Counts.from_buffer_copy(self._counts_path.read_bytes())

    def used_bytes(self, gpu: int = 0) -> int:
        """The bytes that all processes together have reserved or hold."""
        return sum(int(slot.used_bytes[gpu]) for slot in self.counts().slots)

    def slot_of(self, pid: int) -> int:
        """The slot that a process claimed."""
        return next(i for i, slot in enumerate(self.counts().slots) if slot.owner & 0xFFFFFFFF == pid)

    def mark_vacating(self, slot: int) -> None:
        """Mark a slot as the broker does that is about to clear it."""
        offset = Counts.slots.offset + slot * ctypes.sizeof(Slot) + Slot.is_vacating.offset
        with self._counts_path.open("r+b") as file:
            file.seek(offset)
            file.write((1).to_bytes(8, "little"))

    def store_owners(self, owners: list[int]) -> None:
        """Claim the first slots for these owners, or free them with 0."""
        counts = self.counts()
        for slot, owner in zip(counts.slots, owners, strict=False):
            slot.owner = owner
        with self._counts_path.open("r+b") as file:  # in place: processes may have it mapped
            file.write(bytes(counts))

    @contextlib.contextmanager
    def ear(self) -> Iterator["Ear"]:
        """Listen on `hook.sock` for the length of a block."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(str(self.limits_dir / SOCKET_NAME))
            listener.listen(64)
            yield Ear(listener)


class Ear:
    """Receives the messages of the library to the broker: one message per connection."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener

    def next(self, timeout_s: float = PATIENCE_S) -> Message | None:
        """The next message; None if none comes in time."""
        self._listener.settimeout(timeout_s)
        try:
            connection, _ = self._listener.accept()
        except TimeoutError:
            return None
        with connection:
            connection.settimeout(PATIENCE_S)
            return Message.from_buffer_copy(connection.recv(ctypes.sizeof(Message) + 1))
