"""A container's gate as the broker writes it, and an ear for reports on the connections that stay."""

import contextlib
import ctypes
import mmap
import platform
import selectors
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic, sleep
from typing import Final

from plimsoll.layout import (
    GATE_MAGIC,
    GATE_NAME,
    GATE_STATES,
    GATE_STEP,
    KIND_SHARE,
    SHARE_UNFINISHED,
    SHARE_WANTS,
    SOCKET_NAME,
    VERSION,
    Gate,
    Message,
)
from tests.hook.lib.container import ANSWER_S, Container

_FUTEX: Final = {"x86_64": 202, "aarch64": 98}[platform.machine()]
_FUTEX_WAKE: Final = 1
_libc: Final = ctypes.CDLL(None, use_errno=True)

Reports = list[Message]


class Keeper:
    """Writes one container's gate."""

    def __init__(
        self, container: Container, state: int, *, run_ahead_us: int = 2000, idle_us: int = 500
    ) -> None:
        self._path = container.limits_dir / GATE_NAME
        self._path.write_bytes(
            bytes(
                Gate(
                    magic=GATE_MAGIC,
                    version=VERSION,
                    size=ctypes.sizeof(Gate),
                    word=state + GATE_STEP,
                    run_ahead_us=run_ahead_us,
                    idle_us=idle_us,
                )
            )
        )
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
        self._gate.word = (self.word & ~(GATE_STATES | 4)) + GATE_STEP + state
        return self.word

    def wake(self) -> None:
        """Wake who waits."""
        address = ctypes.addressof(self._gate) + Gate.word.offset
        _libc.syscall(_FUTEX, ctypes.c_void_p(address), _FUTEX_WAKE, 1 << 30, None, None, 0)

    def beat(self) -> None:
        """Show that the broker lives."""
        self._gate.beat += 1


class Listener:
    """A broker's ear: keeps what processes report, for as long as the block lasts."""

    def __init__(self, container: Container) -> None:
        self._path = container.limits_dir / SOCKET_NAME
        self._heard: Reports = []
        self._changed = threading.Condition()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._path.unlink(missing_ok=True)
        self._listener.bind(str(self._path))
        self._listener.listen(64)
        self._connections: list[socket.socket] = []
        self._is_ended = False
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def _listen(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            while not self._is_ended:
                for key, _ in selector.select(0.05):
                    if key.fileobj is self._listener:
                        connection, _ = self._listener.accept()
                        self._connections.append(connection)
                        selector.register(connection, selectors.EVENT_READ)
                    elif isinstance(key.fileobj, socket.socket) and not self._hear(key.fileobj):
                        selector.unregister(key.fileobj)
                        self._connections.remove(key.fileobj)
                        key.fileobj.close()

    def _hear(self, connection: socket.socket) -> bool:
        with contextlib.suppress(ConnectionError):
            data = connection.recv(ctypes.sizeof(Message) + 1)
            if data:
                message = Message.from_buffer_copy(data)
                if message.kind == KIND_SHARE:
                    with self._changed:
                        self._heard.append(message)
                        self._changed.notify_all()
                return True
        return False

    @property
    def reports(self) -> Reports:
        """All reports so far."""
        with self._changed:
            return list(self._heard)

    @property
    def standing(self) -> int:
        """How many connections stand."""
        return len(self._connections)

    def wait_for(self, wanted: Callable[[Message], bool]) -> Message:
        """The first report, past or to come, that is wanted."""
        with self._changed:
            assert self._changed.wait_for(lambda: any(map(wanted, self._heard)), ANSWER_S), "no such report"
            return next(filter(wanted, self._heard))

    def drained(self, word: int) -> Message:
        """The report that under this word nothing is unfinished."""
        return self.wait_for(lambda m: m.gate_word == word and not m.share_state & SHARE_UNFINISHED)

    def wanted(self, word: int) -> Message:
        """The report that a launch waits under this word."""
        return self.wait_for(lambda m: m.gate_word == word and bool(m.share_state & SHARE_WANTS))

    def hang_up(self) -> None:
        """End every connection, and go on listening."""
        for connection in self._connections:
            connection.shutdown(socket.SHUT_RDWR)

    def end(self) -> None:
        """Close the socket and every connection, as a broker that dies."""
        self._is_ended = True
        self._thread.join()
        self._path.unlink(missing_ok=True)
        for connection in [self._listener, *self._connections]:
            connection.close()


@contextlib.contextmanager
def listening(container: Container) -> Iterator[Listener]:
    """Listen for the length of a block."""
    listener = Listener(container)
    try:
        yield listener
    finally:
        listener.end()


def until(state: Callable[[], bool]) -> None:
    """Wait for a state; fails if it does not come."""
    end = monotonic() + ANSWER_S
    while not state():
        assert monotonic() < end, "it has not come to that"
        sleep(0.005)


def gate_path(container: Container) -> Path:
    """Where the gate lies."""
    return container.limits_dir / GATE_NAME
