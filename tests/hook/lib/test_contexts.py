"""Contexts that come and go otherwise than by a retain or a create are followed, with their memory."""

from dataclasses import replace

from tests.hook.lib.container import Container, Line
from tests.hook.lib.program import MIB, OUT_OF_MEMORY, SUCCESS, Node
from tests.hook.lib.script import Script

USED = ("green",)


GREEN_MIB = 8
"""The bytes of a green context itself on the emulator. No call shows them, so no word counts them."""


def test_a_green_context_brings_the_primary_one_and_takes_it_along(
    script: Script, node: Node, container: Container
) -> None:
    """A primary context made by a green one is charged, and is gone with it, with the memory allocated there."""
    script.do("code, green = green_on(1); code, second = green_on(1); enter(green)")
    assert container.used_bytes(1) == 64 * MIB
    assert script.get("alloc(100 * MIB)[0]") == SUCCESS
    assert container.used_bytes(1) == 164 * MIB == node.held_bytes({script.pid}, 1) - 2 * GREEN_MIB * MIB
    script.do("must('cuGreenCtxDestroy', green)")
    assert container.used_bytes(1) == 164 * MIB == node.held_bytes({script.pid}, 1) - GREEN_MIB * MIB
    script.do("must('cuGreenCtxDestroy', second)")
    assert container.used_bytes(1) == node.held_bytes({script.pid}, 1) == 0
    assert container.used_bytes(0) == 64 * MIB


def test_memory_of_a_green_context_outlives_it_in_the_primary_one(
    script: Script, node: Node, container: Container
) -> None:
    """Memory allocated in a green context stays until the primary context ends that another holder retains."""
    script.do("code, green = green_on(0); enter(green); code, address = alloc(100 * MIB)")
    script.do("stream = make('cuGreenCtxStreamCreate', green, 1, 0)")
    script.do("must('cuGreenCtxDestroy', green)")
    assert container.used_bytes() == node.held_bytes({script.pid}) == 164 * MIB
    script.do("context_there = make('cuCtxCreate_v2', 0, 0); must('cuCtxDestroy_v2', context_there)")
    assert container.used_bytes() == node.held_bytes({script.pid}) == 164 * MIB
    script.do("must('cuDevicePrimaryCtxRelease_v2', 0)")
    assert container.used_bytes() == node.held_bytes({script.pid}) == 0


def test_a_green_context_past_the_line_is_refused_and_a_failed_one_costs_nothing(
    script: Script, node: Node, container: Container, lines: list[Line]
) -> None:
    """A line without room for the primary context refuses. A refusal by the driver leaves no charge."""
    assert script.get("call('cuGreenCtxCreate', byref(U64()), None, 1, 1)") != SUCCESS
    assert container.used_bytes(1) == node.held_bytes({script.pid}, 1) == 0
    container.rewrite([lines[0], replace(lines[1], line_bytes=63 * MIB)])
    assert script.get("green_on(1)[0]") == OUT_OF_MEMORY
    assert container.used_bytes(1) == node.held_bytes({script.pid}, 1) == 0


def test_the_last_detach_ends_a_context(script: Script, node: Node, container: Container) -> None:
    """A context attached again outlives one detach. With the last one its memory and its own cost go."""
    script.do("there = make('cuCtxCreate_v2', 0, 0); code, address = alloc(50 * MIB)")
    script.do("again = make('cuCtxAttach', 0); must('cuCtxDetach', there)")
    assert container.used_bytes() == node.held_bytes({script.pid}) == 178 * MIB
    script.do("must('cuCtxDetach', there)")
    assert container.used_bytes() == node.held_bytes({script.pid}) == 64 * MIB


def test_an_attached_context_can_be_destroyed_at_once(
    script: Script, node: Node, container: Container
) -> None:
    """A context can be destroyed however often it was attached."""
    script.do("there = make('cuCtxCreate_v2', 0, 0); code, address = alloc(50 * MIB)")
    script.do("again = make('cuCtxAttach', 0); must('cuCtxDestroy_v2', there)")
    assert container.used_bytes() == node.held_bytes({script.pid}) == 64 * MIB
