"""The library's calls to the driver disturb nothing there, and miss no queued work."""

from collections.abc import Iterator
from pathlib import Path
from time import sleep

import pytest

from plimsoll.broker.pages import GATE_METERED, GATE_OPEN, GATE_SHUT
from tests.hook.lib.container import Container
from tests.hook.lib.gate import GateWriter, beating, until
from tests.hook.lib.launcher import Launcher
from tests.hook.lib.launches import another_driver
from tests.hook.lib.program import Node
from tests.hook.lib.script import Script

SECOND = 1_000_000_000


def test_a_release_that_was_not_the_last_hides_nothing(launcher: Launcher) -> None:
    """If another holder retains a released primary context, its work before and after the release is metered."""
    launcher.do(f"""
        for _ in range(3):
            again = make("cuDevicePrimaryCtxRetain", 0)
            assert launch({SECOND}) == 0
            must("cuDevicePrimaryCtxRelease_v2", 0)
        assert launch({SECOND // 2}) == 0
    """)
    until(lambda: launcher.executed_ns() == SECOND * 7 // 2)
    until(lambda: launcher.work().launched_ns == 0)
    assert launcher.told_ns() == pytest.approx(SECOND * 7 // 2, rel=0.02)


@pytest.fixture(name="strict")
def _strict(node: Node, container: Container, gate: GateWriter, tmp_path: Path) -> Iterator[Script]:
    """A program over a driver that counts what the emulator puts up with."""
    driver = another_driver(tmp_path, "strict")
    with beating(gate), Script(node, container.environment | driver, tmp_path) as script:
        script.use("green")
        yield script


COUNTED = "(counted := (UINT * 3)(), call('strictCounts', counted), list(counted))[2]"


def test_the_driver_is_asked_for_nothing_that_costs_or_fails(strict: Script, container: Container) -> None:
    """The library binds no green context to a second thread, makes no stream by a query, and needs no interrupts."""
    strict.do("fill_often(50)")
    slot = container.slot_of(strict.pid)
    until(lambda: container.counts().works[slot].gpus[0].sure_ns > 0)
    assert strict.get(COUNTED) == [0, 0, 0]


@pytest.mark.parametrize(
    "end",
    [
        "assert call('cuGreenCtxCreate', byref(U64()), None, 1, 1) != 0",
        """
            code, green = green_on(1)
            must("cuCtxSetCurrent", make("cuDevicePrimaryCtxRetain", 1))
            address = alloc(MIB)[1]
            must("cuDevicePrimaryCtxRelease_v2", 1)
            must("cuMemsetD8Async", U64(address), 0, SIZE(MIB), None)
            must("cuGreenCtxDestroy", green)
        """,
    ],
    ids=["that was not made", "that was the last"],
)
def test_a_primary_context_that_ends_with_a_green_one(
    strict: Script, container: Container, gate: GateWriter, end: str
) -> None:
    """The library makes no call about a primary context that ended with a green one, or was never made."""
    strict.do(end)
    for state in (GATE_OPEN, GATE_SHUT, GATE_METERED):
        gate.set(state)
        sleep(0.05)
    slot = container.slot_of(strict.pid)
    until(lambda: not any(work.launched_ns for work in container.counts().works[slot].gpus))
    assert strict.get(COUNTED) == [0, 0, 0]
