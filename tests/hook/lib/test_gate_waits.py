"""A launch stands until time opens the gate if nothing of its container executes, else for a bounded time."""

from pathlib import Path
from time import sleep

import pytest

from plimsoll.broker.pages import GATE_METERED, GATE_SHUT
from tests.hook.lib.container import Container
from tests.hook.lib.gate import GateWriter, until
from tests.hook.lib.launcher import Launcher, launching
from tests.hook.lib.program import SUCCESS, Node

USED = ("blockers", "steps")


MS = 1_000_000
LONG_S = 1.5
"""Far longer than a launch stands for anything that executes, as these tests have it."""
FOLLOWING = 1500
"""With stands that double up to 64 times these would take five minutes."""
MANY = 2000
"""This many launches that each of them can not have stood in vain."""


def _spin(launcher: Launcher, ns: int = MS) -> None:
    launcher.do(f"spin({ns}, one)")
    until(lambda: bool(launcher.get("words[STARTED]")))
    assert launcher.work().launched_ns > 0


def _stands(launcher: Launcher) -> None:
    """A launch stands now, and goes on standing."""
    launches = launcher.launches()
    launcher.do("aside(launch, 1000, other)")
    until(lambda: launcher.work().standing == 1)
    sleep(LONG_S)
    assert (launcher.work().standing, launcher.launches()) == (1, launches)


def test_what_a_kernel_spins_for_goes_through_the_shut_gate(launcher: Launcher, gate: GateWriter) -> None:
    """While a persistent kernel waits for a value that later launches write, these go through the shut gate."""
    _spin(launcher)
    gate.set(GATE_SHUT)
    launcher.do("aside(launch_and_write, other, address_of(SPINNING))")
    assert launcher.get("joined()") == [[SUCCESS] * 8]
    until(lambda: launcher.work().launched_ns == 0)
    assert launcher.work().standing == 0


def test_a_reprieve_lasts_until_what_was_unfinished_has_ended(launcher: Launcher, gate: GateWriter) -> None:
    """After the first launch any number follows until the kernel ends. Then launches stand as before."""
    _spin(launcher)
    gate.set(GATE_SHUT)
    launcher.do(f"aside(lambda: [launch(1000, other) for _ in range({MANY})].count(0))")
    assert launcher.get("joined()") == [MANY]
    launcher.do("words[SPINNING] = 1; threads.clear()")
    until(lambda: launcher.work().launched_ns == 0)
    _stands(launcher)
    gate.set(GATE_METERED)
    assert launcher.get("joined()") == [SUCCESS]


@pytest.mark.parametrize("launches", [1, FOLLOWING])
def test_what_another_process_executes_bounds_a_stand(
    launcher: Launcher, node: Node, container: Container, gate: GateWriter, tmp_path: Path, launches: int
) -> None:
    """A launch goes after a bounded time also if another process of the container executes.

    So do those behind it, and sooner: else a gang's slower process would stand longer each time.
    """
    root = tmp_path / "other"
    root.mkdir()
    with launching(node, container, root) as other:
        other.do("other = None")
        _spin(launcher)
        gate.set(GATE_SHUT)
        other.do(f"aside(lambda: [launch(1000) for _ in range({launches})].count(0))")
        until(lambda: other.launches() == launches)
        assert other.get("joined()") == [launches]
        launcher.do("words[SPINNING] = 1")
        until(lambda: launcher.work().launched_ns == other.work().launched_ns == 0)
        other.do("threads.clear()")
        _stands(other)
        gate.set(GATE_METERED)
        assert other.get("joined()") == [SUCCESS]


def test_what_the_other_gpu_executes_bounds_a_stand(launcher: Launcher, gate: GateWriter) -> None:
    """In a collective over two GPUs the kernel on the first waits for the one on the second, which goes."""
    _spin(launcher)
    gate.set(GATE_SHUT)
    launcher.do("aside(launch_there, context=make('cuDevicePrimaryCtxRetain', 1))")
    assert launcher.get("joined()") == [SUCCESS]
    assert launcher.launches(1) == 1
    launcher.do("words[SPINNING] = 1; sync()")


@pytest.mark.parametrize("kernel_ns", [MS, 20 * MS])
def test_a_queue_that_ends_in_its_time_lets_nothing_through(
    launcher: Launcher, gate: GateWriter, kernel_ns: int
) -> None:
    """A greedy program's launches stand until its queue has ended, and then for as long as the gate is shut."""
    launcher.do(f"aside(greedy, {kernel_ns}, 120)")
    until(lambda: launcher.executed_ns() > 20 * kernel_ns)
    passed: list[int] = []
    while not passed or passed[-1] > 2:
        assert len(passed) < 20, f"launches that went through the shut gate, each time: {passed}"
        gate.set(GATE_SHUT)
        sleep(0.001)  # for a launch that had seen the gate metered
        launches = launcher.launches()
        until(launcher.stands_idle)
        passed.append(launcher.launches() - launches)
        executed_ns = launcher.executed_ns()
        sleep(0.1)
        assert launcher.executed_ns() == executed_ns
        gate.set(GATE_METERED)
        sleep(0.1)
    launcher.do("over.set(); joined()")


def test_work_that_takes_longer_than_ever_lets_little_through(launcher: Launcher, gate: GateWriter) -> None:
    """Behind a kernel far longer than those before, a launch goes now and then, and less often each time."""
    launcher.do(f"[launch({MS}, one) for _ in range(50)]; sync()")
    launcher.do(f"launch({3000 * MS}, one)")
    until(lambda: launcher.work().executed_ns > 0)
    gate.set(GATE_SHUT)
    launches = launcher.launches()
    launcher.do(f"aside(launch_until_over, {5 * MS}, other)")
    until(lambda: launcher.work().launched_ns == 0)
    assert launcher.launches() - launches < 100
    launcher.do("over.set()")
    gate.set(GATE_METERED)
    launcher.do("joined()")
