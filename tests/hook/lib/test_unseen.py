"""Contexts that come and go by ways without a hook are charged, and leave nothing behind."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from plimsoll.broker.datagrams import KIND_CONTEXT
from tests.hook.lib.container import Container, Line
from tests.hook.lib.launches import another_driver
from tests.hook.lib.program import MIB, OUT_OF_MEMORY, SUCCESS, Node
from tests.hook.lib.script import Script

CONTEXT_IS_DESTROYED = 709


@pytest.fixture(name="script")
def _script(node: Node, container: Container, tmp_path: Path) -> Iterator[Script]:
    driver = another_driver(tmp_path, "private")
    with Script(node, container.environment | driver, tmp_path) as script:
        script.use("unseen")
        yield script


def _agree(script: Script, node: Node, container: Container, mib: int) -> None:
    """The second GPU's word and the emulator's book say this."""
    assert (container.used_bytes(1), node.held_bytes({script.pid}, 1)) == (mib * MIB, mib * MIB)


@pytest.mark.parametrize("way", ["enter()", "enter('privateCreate')"])
@pytest.mark.parametrize("take", ["alloc(100 * MIB)", "take(96 * MIB)", "array(100)"])
def test_the_first_allocation_brings_the_context_on_the_books(
    script: Script, node: Node, container: Container, way: str, take: str
) -> None:
    """The context's cost is charged, marked for the container's processes, and reported to the broker."""
    script.do(way)
    assert container.used_bytes(1) == 0
    with container.ear() as ear:
        assert script.get(f"{take}[0]") == SUCCESS
        heard = iter(ear.next, None)
        message = next(message for message in heard if message.kind == KIND_CONTEXT)
        assert message.gpu_uuid == node.uuids[1].encode()
    assert container.used_bytes(1) == node.held_bytes({script.pid}, 1) > 150 * MIB
    assert int(container.counts().slots[0].contexts) == 0b11


def test_a_context_past_the_line_is_charged_and_leaves_no_room(
    script: Script, node: Node, container: Container, lines: list[Line]
) -> None:
    """A context past the line counts, and requests beside it are refused."""
    container.rewrite([lines[0], replace(lines[1], line_bytes=32 * MIB)])
    script.do("enter()")
    assert script.get("alloc(MIB)[0]") == OUT_OF_MEMORY
    _agree(script, node, container, 64)


@pytest.mark.parametrize(
    "reset", ["must('cuDevicePrimaryCtxReset_v2', 1)", "must('cuDevicePrimaryCtxRelease_v2', 1)"]
)
def test_a_hooked_end_takes_an_unseen_context_along(
    script: Script, node: Node, container: Container, reset: str
) -> None:
    """A reset or the last release frees an unhooked context's memory and its cost."""
    script.do("enter(); alloc(100 * MIB)")
    script.do(reset)
    _agree(script, node, container, 0)


def test_a_retain_that_finds_an_unseen_context_charges_it_once(
    script: Script, node: Node, container: Container
) -> None:
    """A retain by the program, before or after the context is noticed, adds nothing."""
    script.do("enter(); context(1)")
    _agree(script, node, container, 64)
    script.do("enter(); alloc(100 * MIB); context(1)")
    _agree(script, node, container, 164)


@pytest.mark.parametrize("again", ["begin_anew()", "enter('privateReplace')"])
def test_cycles_of_unseen_resets_are_refused_nothing(
    script: Script, node: Node, container: Container, again: str
) -> None:
    """After each unhooked reset the whole line can be used, under the same handle or another one."""
    script.do("enter()")
    for _ in range(3):
        assert script.get("[alloc(128 * MIB)[0], alloc(100 * MIB)[0], array(20)[0]]") == [SUCCESS] * 3
        _agree(script, node, container, 64 + 128 + 100 + 20)
        script.do(again)
    assert script.get("alloc(256 * MIB)[0]") == SUCCESS
    _agree(script, node, container, 64 + 256)
    assert script.get("alloc(MIB)[0]") == OUT_OF_MEMORY


def test_what_lives_under_a_reused_handle_stays_counted(
    script: Script, node: Node, container: Container
) -> None:
    """Memory taken after a reset that is not noticed yet is not swept with the memory that the reset freed."""
    script.do("enter(); held = [alloc(2 * MIB)[1] for _ in range(30)]; alloc(20 * MIB)")
    script.do("begin_anew(); held = [alloc(3 * MIB)[1] for _ in range(40)]")
    assert script.get("alloc(128 * MIB)[0]") == OUT_OF_MEMORY
    _agree(script, node, container, 64 + 40 * 4)
    script.do("for address in held: must('cuMemFree_v2', U64(address))")
    _agree(script, node, container, 64)


@pytest.mark.parametrize("end", ["must('cuDevicePrimaryCtxReset_v2', 1)", "end_unseen()"])
def test_a_context_that_is_gone_is_not_taken_for_a_new_one(
    script: Script, node: Node, container: Container, end: str
) -> None:
    """The driver refuses a thread whose current context has ended, and nothing is charged."""
    script.do(f"context(1); alloc(100 * MIB); {end}")
    assert script.get("[alloc(200 * MIB)[0], alloc(200 * MIB)[0]]") == [CONTEXT_IS_DESTROYED] * 2
    _agree(script, node, container, 0)


def test_a_retain_notices_an_unseen_reset(script: Script, node: Node, container: Container) -> None:
    """The program's retain of the next context frees the memory of the one before."""
    script.do("context(1); alloc(100 * MIB); end_unseen()")
    script.do("context(1)")
    _agree(script, node, container, 64)


def test_a_pool_outlives_unseen_resets(script: Script, node: Node, container: Container) -> None:
    """Stream-ordered allocations go with the context as well."""
    script.do("enter()")
    for _ in range(3):
        assert script.get("[take(96 * MIB)[0], take(96 * MIB)[0]]") == [SUCCESS] * 2
        script.do("begin_anew()")
    assert script.get("alloc(192 * MIB)[0]") == SUCCESS
    assert container.used_bytes(1) == node.held_bytes({script.pid}, 1)
