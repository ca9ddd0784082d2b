"""The heap of device-side malloc and the buffer of device-side printf are held to the line."""

import pytest

from tests.hook.lib.container import Container
from tests.hook.lib.program import MIB, OUT_OF_MEMORY, SUCCESS, Node
from tests.hook.lib.script import Script

USED = ("limits",)


STACK, PRINTF, HEAP = 0, 1, 2
CONTEXT_MIB = 64


@pytest.mark.parametrize("limit", [PRINTF, HEAP])
def test_what_is_added_counts_until_it_is_lowered(
    script: Script, node: Node, container: Container, limit: int
) -> None:
    """Each byte beyond the driver's own size counts, and no byte below it."""
    script.do(f"own = get({limit})")
    assert script.get(f"change({limit}, own + 100 * MIB)") == SUCCESS
    assert container.used_bytes() == (CONTEXT_MIB + 100) * MIB == node.held_bytes({script.pid})
    assert script.get(f"[change({limit}, own + 150 * MIB), change({limit}, own + 40 * MIB)]") == [SUCCESS] * 2
    assert container.used_bytes() == (CONTEXT_MIB + 40) * MIB == node.held_bytes({script.pid})
    assert script.get(f"[change({limit}, own // 2), change({limit}, own)]") == [SUCCESS] * 2
    assert container.used_bytes() == CONTEXT_MIB * MIB


def test_past_the_line_is_refused_and_changes_nothing(script: Script, container: Container) -> None:
    """Past the line the driver is not called, and the earlier charge stays."""
    script.do(f"own = get({HEAP}); change({HEAP}, own + 100 * MIB)")
    assert script.get(f"change({HEAP}, own + 300 * MIB)") == OUT_OF_MEMORY
    assert script.get(f"get({HEAP}) - own") == 100 * MIB
    assert container.used_bytes() == (CONTEXT_MIB + 100) * MIB
    assert script.get(f"change({PRINTF}, 200 * MIB)") == OUT_OF_MEMORY
    assert script.get(f"change({HEAP}, (1 << 64) - 1)") == OUT_OF_MEMORY
    assert script.get("alloc(156 * MIB)[0]") == SUCCESS


@pytest.mark.parametrize(
    ("make", "end"),
    [
        ("there = make('cuCtxCreate_v2', 0, 0)", "must('cuCtxDestroy_v2', there)"),
        ("context(1)", "must('cuDevicePrimaryCtxReset_v2', 1)"),
    ],
)
def test_it_ends_with_its_context(script: Script, container: Container, make: str, end: str) -> None:
    """Each context has limits of its own, whose charge ends with it."""
    script.do(f"own = get({HEAP}); {make}; change({HEAP}, own + 50 * MIB); change({PRINTF}, 50 * MIB)")
    assert container.used_bytes(0) + container.used_bytes(1) > (2 * CONTEXT_MIB + 90) * MIB
    script.do(end)
    assert container.used_bytes(0) + container.used_bytes(1) == CONTEXT_MIB * MIB


def test_what_the_driver_refuses_costs_nothing(script: Script, container: Container) -> None:
    """Without a current context the driver's own error is returned, and other limits pass through."""
    assert script.get(f"change({STACK}, 64 * MIB)") == SUCCESS
    script.do("must('cuCtxSetCurrent', None)")
    assert script.get(f"change({HEAP}, 100 * MIB)") == 201
    assert container.used_bytes() == CONTEXT_MIB * MIB
