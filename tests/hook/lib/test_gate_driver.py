"""What the library asks of the driver harms nothing there, and misses nothing that is queued."""

from collections.abc import Iterator
from pathlib import Path
from time import sleep

import pytest

from plimsoll.layout import GATE_METERED, GATE_OPEN, GATE_SHUT
from tests.hook.lib.container import Container
from tests.hook.lib.gate import Keeper, Listener, until
from tests.hook.lib.launcher import Launcher
from tests.hook.lib.launches import another_driver
from tests.hook.lib.program import Node
from tests.hook.lib.script import Script
from tests.hook.lib.test_contexts import HELPERS as GREEN

SECOND = 1_000_000_000


@pytest.fixture(name="gate")
def _gate(container: Container) -> Keeper:
    return Keeper(container, GATE_METERED)


def test_launches_beside_one_that_goes_on_and_on(launcher: Launcher) -> None:
    """Beside work that waits for a peer, in another stream, launches go at their own pace and not at its."""
    launcher.do("""
        waiter, worker = [make("cuStreamCreate", 1) for _ in range(2)]
        word = alloc(64)[1]
        must("cuMemsetD8_v2", U64(word), 0, SIZE(64))

        def hold(number):
            must("cuStreamWaitValue32", waiter, U64(word), number, 0)
            assert launch(20000, waiter) == 0

        def let(number):
            must("cuStreamWriteValue32", worker, U64(word), number, 0)

        assert launch(1000000, worker) == 0
        hold(1); time.sleep(0.3); let(1); sync()  # so long that an average that counts the wait is far off
        hold(2)
        for _ in range(1000):
            assert launch(20000, worker) == 0
            must("cuStreamSynchronize", worker)
        let(2); sync()
    """)
    assert launcher.launches() >= 1003


def test_the_queue_of_every_stream_is_waited_for(launcher: Launcher, gate: Keeper, ear: Listener) -> None:
    """A launch that comes to the shut gate before the library's own thread shows more than its own stream."""
    launcher.do("one, other = [make('cuStreamCreate', 1) for _ in range(2)]")
    gate.set(GATE_OPEN)
    sleep(0.05)
    launcher.do(f"assert launch({SECOND}, other) == 0")
    word = gate.set_quietly(GATE_SHUT)
    launcher.do("aside(launch, 1000, one)")
    ear.wanted(word)
    gate.wake()
    ear.drained(word)
    assert launcher.unfinished_ns() >= SECOND
    gate.set(GATE_OPEN)
    launcher.do("joined()")


def test_what_was_queued_before_a_release_that_was_not_the_last(
    launcher: Launcher, gate: Keeper, ear: Listener
) -> None:
    """A primary context that somebody else retains lives on: what it was given before is waited for and metered."""
    launcher.do(f"""
        assert launch({SECOND}) == 0
        again = make("cuDevicePrimaryCtxRetain", 0)
        must("cuDevicePrimaryCtxRelease_v2", 0)
    """)
    report = ear.drained(gate.set(GATE_SHUT))
    assert launcher.unfinished_ns() >= SECOND
    assert report.busy_ns > SECOND // 2


@pytest.fixture(name="strict")
def _strict(
    node: Node, container: Container, gate: Keeper, ear: Listener, tmp_path: Path
) -> Iterator[Script]:
    """A program over a driver that counts what the emulator puts up with."""
    assert gate.word
    assert ear.standing == 0
    driver = another_driver(tmp_path, "strict_driver.c")
    with Script(node, container.environment | driver, tmp_path) as script:
        script.do(GREEN)
        yield script


COUNTED = "(counted := (UINT * 3)(), call('strictCounts', counted), list(counted))[2]"


def test_the_driver_is_asked_for_nothing_that_costs_or_fails(strict: Script, container: Container) -> None:
    """No second thread takes a green context, no stream is made by asking after it, no event needs an interrupt."""
    strict.do("""
        code, green = green_on(0)
        enter(green)
        mine, done, address = make("cuGreenCtxStreamCreate", green, 1, 0), make("cuEventCreate", 0), alloc(MIB)[1]
        for _ in range(50):
            must("cuMemsetD8Async", U64(address), 0, SIZE(MIB), mine)
            must("cuEventRecord", done, mine)
            must("cuEventSynchronize", done)
        sync()
    """)
    until(lambda: container.counts().slots[container.slot_of(strict.pid)].busy_ns > 0)
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
    strict: Script, gate: Keeper, ear: Listener, end: str
) -> None:
    """What a green context took along when it ended, or was not made after all, the driver is asked about no more."""
    strict.do(end)
    gate.set(GATE_OPEN)
    sleep(0.05)
    ear.drained(gate.set(GATE_SHUT))
    assert strict.get(COUNTED) == [0, 0, 0]
