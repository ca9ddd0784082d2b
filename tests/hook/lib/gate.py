"""A container's gate as the broker writes it."""

import contextlib
import ctypes
import mmap
import platform
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic, monotonic_ns, sleep
from typing import Final

from plimsoll.broker.pages import GATE_MAGIC, GATE_NAME, GATE_STATES, GATE_STEP, VERSION, Gate
from tests.hook.lib.container import Container
from tests.servers.waiting import PATIENCE_S

_FUTEX: Final = {"x86_64": 202, "aarch64": 98}[platform.machine()]
_FUTEX_WAKE: Final = 1
_libc: Final = ctypes.CDLL(None, use_errno=True)

AGES_NS: Final = 3600 * 10**9
"""Longer than any test. A thread that beats would stand still with the test's process, and launches would go."""
AHEAD_US: Final = 10_000
ALONE_US: Final = 100_000
SLICE_US: Final = 2_000


class GateWriter:
    """Writes one container's gate; its broker lives while it is `beating`."""

    def __init__(self, container: Container, state: int) -> None:
        self._path = gate_path(container)
        page = Gate(
            magic=GATE_MAGIC,
            version=VERSION,
            size=ctypes.sizeof(Gate),
            word=state + GATE_STEP,
            sharers=1,
            beat_ns=monotonic_ns(),
            ahead_us=AHEAD_US,
            alone_us=ALONE_US,
            slice_us=SLICE_US,
        )
        self._path.write_bytes(bytes(page))
        with self._path.open("r+b") as file:
            self._gate = Gate.from_buffer(mmap.mmap(file.fileno(), ctypes.sizeof(Gate)))

    @property
    def word(self) -> int:
        """The word as it stands."""
        return int(self._gate.word)

    def set(self, state: int) -> int:
        """Change the state and wake who waits; returns the new word."""
        word = self.set_quietly(state)
        self.wake()
        return word

    def set_quietly(self, state: int) -> int:
        """Change the state and wake nobody; returns the new word."""
        self._gate.word = (self.word & ~GATE_STATES) + GATE_STEP + state
        return self.word

    def wake(self) -> None:
        """Wake who waits."""
        address = ctypes.addressof(self._gate) + Gate.word.offset
        _libc.syscall(_FUTEX, ctypes.c_void_p(address), _FUTEX_WAKE, 1 << 30, None, None, 0)

    def beat(self, ahead_ns: int = 0) -> None:
        """Show that the broker lives, now or until later."""
        self._gate.beat_ns = monotonic_ns() + ahead_ns

    def allow_ahead(self, ahead_us: int) -> None:
        """Let a process have this much work queued behind a metered gate."""
        self._gate.ahead_us = ahead_us

    def share_with(self, sharers: int) -> None:
        """Say how many processes have work on the GPU."""
        self._gate.sharers = sharers


@contextlib.contextmanager
def beating(gate: GateWriter) -> Iterator[GateWriter]:
    """Show for the length of a block that the broker lives."""
    gate.beat(AGES_NS)
    try:
        yield gate
    finally:
        gate.beat()


def until(state: Callable[[], bool]) -> None:
    """Wait for a state; fails if it does not come."""
    end = monotonic() + PATIENCE_S
    while not state():
        assert monotonic() < end, "it has not come to that"
        sleep(0.005)


def gate_path(container: Container) -> Path:
    """Where the gate lies."""
    return container.limits_dir / GATE_NAME
