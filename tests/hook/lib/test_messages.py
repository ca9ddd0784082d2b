"""The library's messages to the broker, which never delay a program, also if no broker listens."""

import ctypes
from pathlib import Path

from plimsoll.broker.datagrams import (
    KIND_CONTEXT,
    KIND_DENIED,
    KIND_HELLO,
    KIND_UNKNOWN,
    MESSAGE_MAGIC,
    Message,
)
from plimsoll.broker.pages import SOCKET_NAME, VERSION
from tests.hook.lib.container import Container
from tests.hook.lib.program import EMULATOR, MIB, OUT_OF_MEMORY, SUCCESS, Node


def _checked(message: Message | None, kind: int) -> Message:
    assert message is not None
    assert (message.magic, message.version, message.kind) == (MESSAGE_MAGIC, VERSION, kind)
    return message


def test_a_process_is_announced_with_its_contexts_and_refusals(
    node: Node, asker: Path, container: Container
) -> None:
    """The messages are a hello at cuInit, a context per GPU, and a refusal with its function and numbers."""
    with container.ear() as ear, node.run(asker, container.environment) as program:
        program.start(0)
        hello = _checked(ear.next(), KIND_HELLO)
        assert hello.owner == container.counts().slots[hello.slot].owner
        assert hello.owner & 0xFFFFFFFF == program.pid
        first = _checked(ear.next(), KIND_CONTEXT)
        assert first.gpu_uuid.decode() == node.uuids[0]
        assert program.ask("retain 0") == [SUCCESS]
        assert program.ask("retain 1") == [SUCCESS]
        assert _checked(ear.next(), KIND_CONTEXT).gpu_uuid.decode() == node.uuids[1]
        assert program.alloc(1024, "cuMemAllocManaged")[0] == OUT_OF_MEMORY
        denied = _checked(ear.next(), KIND_DENIED)
        assert denied.text == b"cuMemAllocManaged"
        assert denied.gpu_uuid.decode() == node.uuids[1]
        assert (denied.requested_bytes, denied.used_bytes, denied.line_bytes) == (
            1024 * MIB,
            64 * MIB,
            320 * MIB,
        )
        assert denied.slot == hello.slot


def test_refusals_are_all_counted_and_seldom_told(node: Node, asker: Path, container: Container) -> None:
    """The slot counts each refusal of a burst, and the broker gets a few messages at most."""
    with container.ear() as ear, node.run(asker, container.environment) as program:
        program.start()
        assert program.ask(f"hammer 2000 {1024 * MIB}") == [0]
        assert int(container.counts().slots[0].denied_count) == 2000
        kinds = []
        while (message := ear.next(timeout_s=1)) is not None:
            kinds.append(message.kind)
        assert kinds[:2] == [KIND_HELLO, KIND_CONTEXT]
        assert 1 <= kinds.count(KIND_DENIED) < 1000


def test_a_second_driver_is_reported(node: Node, asker: Path, container: Container, tmp_path: Path) -> None:
    """A second copy of the driver is not held to the line, and the broker gets a message about it."""
    copy = tmp_path / "libcuda.so.999"
    copy.write_bytes((EMULATOR / "libcuda.so.1").read_bytes())
    with container.ear() as ear, node.run(asker, container.environment) as program:
        program.start()
        _checked(ear.next(), KIND_HELLO)
        _checked(ear.next(), KIND_CONTEXT)
        assert program.ask(f"load {copy}") == [0]
        assert program.words("where driver cuMemAlloc_v2") == [copy.name, "cuMemAlloc_v2"]
        assert _checked(ear.next(), KIND_UNKNOWN).text == b"cuMemAlloc_v2"


def test_a_late_broker_is_greeted_first(node: Node, asker: Path, container: Container) -> None:
    """A program that started while the broker was away says hello before its next message."""
    with node.run(asker, container.environment) as program:
        program.start()
        with container.ear() as ear:
            assert program.ask("retain 1") == [SUCCESS]
            hello = _checked(ear.next(), KIND_HELLO)
            assert hello.owner & 0xFFFFFFFF == program.pid
            assert _checked(ear.next(), KIND_CONTEXT).gpu_uuid.decode() == node.uuids[1]


def test_a_deaf_broker_does_not_hold_up_the_program(node: Node, asker: Path, container: Container) -> None:
    """With an unserved socket, or without one, every call goes on at once."""
    with container.ear(), node.run(asker, container.environment) as program:
        program.start()
        for _ in range(200):
            assert program.alloc(1024)[0] == OUT_OF_MEMORY
    (container.limits_dir / SOCKET_NAME).unlink()
    with node.run(asker, container.environment) as program:
        program.start()
        assert program.alloc(1024)[0] == OUT_OF_MEMORY
        assert program.errors() == ""


def test_a_message_is_as_long_as_the_layout_says() -> None:
    """The datagram's size is part of the contract."""
    assert ctypes.sizeof(Message) == 256
