"""Within its line but past what was granted, an allocation waits for the broker's answer instead of failing.

The broker here is scripted, so that it can refuse, restart and say nothing; the real one has its own tests.
"""

import ctypes
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from plimsoll.broker.datagrams import (
    KIND_FREED,
    KIND_GRANTED,
    KIND_REFUSED,
    KIND_WAIT,
    MESSAGE_MAGIC,
    Message,
)
from plimsoll.broker.pages import SOCKET_NAME, VERSION
from tests.hook.lib.container import Container, Line
from tests.hook.lib.program import MIB, NOT_INITIALIZED, OUT_OF_MEMORY, SUCCESS, Node, Program
from tests.hook.lib.script import Script
from tests.servers.waiting import PATIENCE_S


class ScriptedBroker:
    """Hears everything on `hook.sock`, and answers waits as the test says."""

    def __init__(self, container: Container) -> None:
        self._path = container.limits_dir / SOCKET_NAME
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(str(self._path))
        self._listener.listen(64)
        self._listener.settimeout(PATIENCE_S)

    def next(self, kind: int) -> tuple[Message, socket.socket]:
        """The next message of a kind, past others, and its connection."""
        while True:
            connection, _ = self._listener.accept()
            connection.settimeout(PATIENCE_S)
            message = Message.from_buffer_copy(connection.recv(ctypes.sizeof(Message)))
            if message.kind == kind:
                return message, connection
            connection.close()

    def close(self) -> None:
        """Go away, as a broker does that restarts."""
        self._listener.close()
        self._path.unlink(missing_ok=True)


def _answer(connection: socket.socket, kind: int, text: bytes = b"") -> None:
    connection.send(bytes(Message(magic=MESSAGE_MAGIC, version=VERSION, kind=kind, text=text)))
    connection.close()


@pytest.fixture(name="broker")
def _broker(container: Container) -> Iterator[ScriptedBroker]:
    broker = ScriptedBroker(container)
    yield broker
    broker.close()


@pytest.fixture(name="granted")
def _granted(program: Program, container: Container, lines: list[Line]) -> list[Line]:
    """The program's container was granted its context and 36 MiB of its 320 MiB."""
    assert program.pid
    granted = [replace(line, granted_bytes=100 * MIB) for line in lines]
    container.rewrite(granted)
    return granted


def test_a_grant_lets_the_allocation_go_on(
    broker: ScriptedBroker, program: Program, container: Container, granted: list[Line], lines: list[Line]
) -> None:
    """The wait's message has size and GPU. Nothing is reserved meanwhile, and the grant ends the wait."""
    program.tell(f"alloc cuMemAlloc_v2 {128 * MIB}")
    wait, connection = broker.next(KIND_WAIT)
    assert (wait.requested_bytes, wait.used_bytes, wait.line_bytes) == (128 * MIB, 64 * MIB, 320 * MIB)
    assert wait.gpu_uuid.decode() == granted[0].uuid
    assert container.used_bytes() == 64 * MIB
    container.rewrite(lines)
    _answer(connection, KIND_GRANTED)
    assert program.answer()[0] == str(SUCCESS)
    assert container.used_bytes() == 192 * MIB


def test_a_grant_that_another_took_is_asked_for_again(
    broker: ScriptedBroker, program: Program, container: Container, granted: list[Line], lines: list[Line]
) -> None:
    """An allocation that is granted and still finds no room waits again, and errno stays unchanged."""
    assert granted
    program.tell(f"alloc cuMemAlloc_v2 {128 * MIB}")
    for _ in range(3):
        _answer(broker.next(KIND_WAIT)[1], KIND_GRANTED)
    _, connection = broker.next(KIND_WAIT)
    container.rewrite(lines)
    _answer(connection, KIND_GRANTED)
    result, _, errno = program.answer()
    assert (result, errno) == (str(SUCCESS), "77")


def test_a_graph_waits_at_its_launch(
    broker: ScriptedBroker, node: Node, container: Container, lines: list[Line], tmp_path: Path
) -> None:
    """A launch of a graph waits for its nodes' memory like an allocation."""
    with Script(node, container.environment, tmp_path) as script:
        container.rewrite([replace(line, granted_bytes=100 * MIB) for line in lines])
        script.use("graphs")
        script.do("whole, _ = by_hand(100 * MIB); waiting = launch_aside(whole)")
        wait, connection = broker.next(KIND_WAIT)
        assert (wait.requested_bytes, wait.used_bytes) == (100 * MIB, 64 * MIB)
        container.rewrite(lines)
        _answer(connection, KIND_GRANTED)
        script.do("waiting.join()")
        assert script.get("launched") == [SUCCESS]
        assert container.used_bytes() == 164 * MIB


def test_a_launch_that_is_captured_asks_for_nothing(
    node: Node, container: Container, lines: list[Line], tmp_path: Path
) -> None:
    """A captured launch gets the driver's answer at once, without a wait."""
    with Script(node, container.environment, tmp_path) as script:
        container.rewrite([replace(line, granted_bytes=100 * MIB) for line in lines])
        script.use("graphs")
        script.do("whole, _ = by_hand(100 * MIB)")
        script.do("must('cuStreamBeginCapture_v2', stream, 2)")
        assert script.get("launch(whole)") != OUT_OF_MEMORY
        assert container.used_bytes() == 64 * MIB


def test_a_refusal_is_out_of_memory_with_its_reason(
    broker: ScriptedBroker, program: Program, container: Container, granted: list[Line]
) -> None:
    """A refused wait fails like an allocation past the line, with the reason."""
    assert granted
    program.tell(f"alloc cuMemAlloc_v2 {128 * MIB}")
    _answer(broker.next(KIND_WAIT)[1], KIND_REFUSED, b"it waits for itself")
    assert program.answer()[0] == str(OUT_OF_MEMORY)
    assert "it waits for itself" in program.errors()
    assert int(container.counts().slots[0].denied_count) == 1
    assert container.used_bytes() == 64 * MIB


def test_past_the_line_nobody_is_asked(broker: ScriptedBroker, program: Program, granted: list[Line]) -> None:
    """A request past the line is refused at once, as no grant could allow it."""
    assert broker is not None
    assert granted
    assert program.alloc(257)[0] == OUT_OF_MEMORY


def test_a_broker_that_restarts_is_asked_again(
    broker: ScriptedBroker, program: Program, container: Container, granted: list[Line], lines: list[Line]
) -> None:
    """A wait outlives its broker and asks the next one."""
    assert granted
    program.tell(f"alloc cuMemAlloc_v2 {128 * MIB}")
    _, connection = broker.next(KIND_WAIT)
    broker.close()
    connection.close()
    following = ScriptedBroker(container)
    _, connection = following.next(KIND_WAIT)
    container.rewrite(lines)
    _answer(connection, KIND_GRANTED)
    assert program.answer()[0] == str(SUCCESS)
    following.close()


def test_a_context_waits_too(
    broker: ScriptedBroker, program: Program, container: Container, lines: list[Line]
) -> None:
    """A program that starts on a full GPU waits for its context's own memory."""
    container.rewrite([replace(line, granted_bytes=0) for line in lines])
    program.tell("retain 1")
    wait, connection = broker.next(KIND_WAIT)
    assert wait.requested_bytes == 64 * MIB
    container.rewrite(lines)
    _answer(connection, KIND_GRANTED)
    assert program.answer() == [str(SUCCESS)]


def test_threads_wait_side_by_side_and_a_fork_disturbs_none(
    broker: ScriptedBroker,
    program: Program,
    container: Container,
    granted: list[Line],
    lines: list[Line],
    tmp_path: Path,
) -> None:
    """Each thread has a wait of its own. A child forked meanwhile does not wait, and takes no answer."""
    assert granted
    commands = tmp_path / "commands"
    commands.write_text("pid\nalloc cuMemAlloc_v2 1048576\n")
    assert program.ask(f"crowd 3 {40 * MIB}") == [0]
    waits = [broker.next(KIND_WAIT) for _ in range(3)]
    assert {wait.requested_bytes for wait, _ in waits} == {40 * MIB}
    program.tell(f"fork {commands}")
    (child,) = program.answer()
    assert program.answer()[0] == str(NOT_INITIALIZED)
    assert program.answer() == [child, "0"]
    assert container.slot_of(program.pid) != container.slot_of(int(child))
    assert container.used_bytes() == 64 * MIB
    _answer(waits[0][1], KIND_REFUSED, b"there is no room for it")
    container.rewrite(lines)
    for _, connection in waits[1:]:
        _answer(connection, KIND_GRANTED)
    assert program.ask("joined") == [2]
    assert container.used_bytes() == 144 * MIB


def test_a_free_is_told_where_somebody_waits(
    broker: ScriptedBroker, program: Program, container: Container, lines: list[Line]
) -> None:
    """While `is_wanted` is set each free is reported with its bytes, and otherwise none."""
    _, first = program.alloc(100)
    _, second = program.alloc(50)
    assert program.ask(f"free cuMemFree_v2 {first}") == [SUCCESS]
    container.rewrite([replace(line, is_wanted=True) for line in lines])
    assert program.ask(f"free cuMemFree_v2 {second}") == [SUCCESS]
    freed, connection = broker.next(KIND_FREED)
    connection.close()
    assert (freed.requested_bytes, freed.used_bytes) == (50 * MIB, 64 * MIB)
    assert freed.gpu_uuid.decode() == lines[0].uuid
