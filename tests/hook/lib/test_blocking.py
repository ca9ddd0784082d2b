"""Behind a blocked stream nothing executes and nothing is charged, and launches stand until the gate opens."""

from itertools import pairwise
from time import sleep

import pytest

from plimsoll.broker.pages import GATE_METERED, GATE_OPEN, GATE_SHUT
from tests.hook.lib.gate import GateWriter, until
from tests.hook.lib.launcher import Launcher
from tests.hook.lib.program import SUCCESS

USED = ("blockers", "steps")


MS = 1_000_000
BLOCKED_S = 0.2
LONG_S = 1.5
SEEN_S = 0.15
"""Until the library has seen that something blocks no longer, where no thread of the program comes by."""
ROUNDS = 3
KINDS = ("function", "callback", "value", "old value", "batch", "event")
SWINGS = 10


def test_every_blocker_has_a_case(launcher: Launcher) -> None:
    """Each blocker that the script can put into a stream has a case here."""
    assert tuple(launcher.get("list(blockers)")) == KINDS


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_executes_behind_what_blocks(launcher: Launcher, gate: GateWriter, kind: str) -> None:
    """The page shows that the stream is blocked. A launch stands for ever, and goes as soon as the gate opens."""
    launcher.do(f"launch({MS}, one); blockers[{kind!r}](one); launch({MS}, one)")
    until(lambda: launcher.work().launched_ns == 0)
    gate.set(GATE_SHUT)
    launches = launcher.launches()
    launcher.do("aside(launch, 1000, one); aside(launch, 1000, other)")
    until(lambda: launcher.work().standing == 2)
    sleep(LONG_S)
    assert (launcher.launches(), launcher.work().standing, launcher.work().launched_ns) == (launches, 2, 0)
    gate.set(GATE_METERED)
    assert launcher.get("joined()") == [SUCCESS] * 2
    launcher.do("release(); sync()")
    assert launcher.executed_ns() == 2 * MS + 2000


@pytest.mark.parametrize("kind", KINDS)
def test_what_blocked_behind_an_open_gate_still_blocks(
    launcher: Launcher, gate: GateWriter, kind: str
) -> None:
    """A stream that was blocked while the gate was open executes nothing when metering begins, and counts nothing."""
    gate.set(GATE_OPEN)
    launcher.do(f"blockers[{kind!r}](one)")
    gate.set(GATE_METERED)
    launcher.do(f"launch({MS}, one)")
    sleep(BLOCKED_S)
    assert (launcher.work().launched_ns, launcher.told_ns()) == (0, 0)
    launcher.do("release(); sync()")
    until(lambda: launcher.work().launched_ns == 0)
    assert launcher.told_ns() == pytest.approx(MS, abs=MS)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("wait", ["must('cuStreamSynchronize', one)", "sync()", "pass"])
@pytest.mark.parametrize(
    "beside", ["pass", "[launch(20000, other) for _ in range(100)]"], ids=["alone", "beside"]
)
def test_the_time_of_what_blocks_is_not_told(launcher: Launcher, kind: str, wait: str, beside: str) -> None:
    """Time in which work is blocked does not count: page and book agree, for any wait and beside other streams."""
    launcher.do("[launch(20000, one) for _ in range(50)]; sync()")
    ahead_ns = [_ahead_ns(launcher)]
    for _ in range(ROUNDS):
        launcher.do(f"""
            launch({5 * MS}, one)
            blockers[{kind!r}](one)
            launch({50 * MS}, one)
            {beside}
            timer = threading.Timer({BLOCKED_S}, release)
            timer.start()
            {wait}
            timer.join()
            sync()
        """)
        sleep(SEEN_S)
        ahead_ns.append(_ahead_ns(launcher))
    off_ns = [abs(after - before) for before, after in pairwise(ahead_ns)]
    assert sorted(off_ns)[ROUNDS // 2] < 15 * MS, f"told that much more or less than executed: {off_ns}"


def _ahead_ns(launcher: Launcher) -> int:
    """How much more the page says than the book, once nothing executes."""
    until(lambda: launcher.work().launched_ns == 0)
    return launcher.told_ns() - launcher.executed_ns()


def test_what_was_blocked_shows_as_soon_as_it_executes(launcher: Launcher) -> None:
    """When a stream goes on the page shows executing work, though no thread of the program makes a call."""
    launcher.do(f"launch({MS}, one); by_value(one); launch({3000 * MS}, one)")
    until(lambda: launcher.work().launched_ns == 0)
    sleep(LONG_S)
    launcher.do("release()")
    until(lambda: launcher.work().executed_ns > 0)
    until(lambda: (work := launcher.work()).launched_ns == work.queued_ns == 0)
    assert launcher.told_ns() == pytest.approx(launcher.executed_ns(), rel=0.02)


def test_a_lock_that_a_queued_host_function_needs_may_be_kept_at_the_gate(
    launcher: Launcher, gate: GateWriter
) -> None:
    """A thread stands with Python's lock while nothing executes, and the program goes on each time the gate opens."""
    launcher.do("aside(step_under_lock, one)")
    for _ in range(SWINGS):
        gate.set(GATE_SHUT)
        until(launcher.stands_idle)
        launches = launcher.launches()
        sleep(0.1)
        assert (launcher.launches(), launcher.work().standing) == (launches, 1)
        gate.set(GATE_METERED)
        until(lambda: launcher.launches() > launches + 20)  # noqa: B023 - called at once
    launcher.do("over.set(); joined(); sync()")
    assert launcher.get("len(done)") == launcher.launches()


def test_a_stream_may_wait_for_what_the_gate_holds_back(launcher: Launcher, gate: GateWriter) -> None:
    """A stream waits for another's later launches, which stand and go on each time the gate opens."""
    launcher.do(
        "for _ in range(20): launch(1000); sync()"
    )  # a look right after an end tells the clocks apart
    launcher.do("aside(step_across, one, other, address_of(BLOCKED))")
    for _ in range(SWINGS):
        gate.set(GATE_SHUT)
        until(launcher.stands_idle)
        launches = launcher.launches()
        sleep(0.1)
        assert (launcher.launches(), launcher.work().standing) == (launches, 1)
        gate.set(GATE_METERED)
        until(lambda: launcher.launches() > launches + 20)  # noqa: B023 - called at once
    launcher.do("over.set(); joined(); sync()")
    sleep(SEEN_S)
    until(lambda: launcher.work().launched_ns == 0)
    assert launcher.told_ns() == pytest.approx(launcher.executed_ns(), rel=0.1)
