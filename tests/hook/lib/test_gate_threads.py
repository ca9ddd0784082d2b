"""Threads that are cancelled or disturbed at a gate, and green contexts, hang nothing and lose nothing."""

import os
import signal

import pytest

from plimsoll.broker.pages import GATE_METERED, GATE_SHUT
from tests.hook.lib.container import Container
from tests.hook.lib.gate import GateWriter, beating, until
from tests.hook.lib.launcher import Launcher
from tests.hook.lib.program import OUT_OF_MEMORY, SUCCESS, Node, compiled

MS = 1_000_000
ROUNDS = 50
LONG_MS = 20  # an end is dated when it is seen; next to this, a machine's delays are short


def test_a_thread_that_is_cancelled_at_the_gate(node: Node, container: Container, gate: GateWriter) -> None:
    """A cancelled thread leaves the gate with its launch done and no lock kept; the next launch stands and goes.

    Its library's own thread starts beside thread-local data that are larger than the stack it asks for.
    """
    gate.set(GATE_SHUT)
    with (
        beating(gate),
        node.run(compiled("at_gate"), container.environment, arguments=("cancelled",)) as waiter,
    ):
        until(lambda: container.counts().works[0].gpus[0].standing == 1)
        gate.set(GATE_METERED)
        assert waiter.answer() == ["ended", "1"]
        assert waiter.answer() == ["launch", "0"]
        assert waiter.end() == 0
        assert waiter.errors() == ""
    assert container.counts().works[0].gpus[0].standing == 0


def test_a_child_that_is_forked_beside_launches_gets_cudas_error(
    node: Node, container: Container, gate: GateWriter
) -> None:
    """`cuInit` returns in a forked child also if a thread of the parent held the driver's lock at the fork."""
    with (
        beating(gate),
        node.run(compiled("at_gate"), container.environment, arguments=("beside",)) as launcher,
    ):
        assert launcher.answer() == ["wrong", "0"]
        assert launcher.end() == 0


def test_signals_without_rest_let_nobody_through(launcher: Launcher, gate: GateWriter) -> None:
    """A launch whose every sleep is ended early by a signal stands all the same, and its handlers run."""
    gate.set(GATE_SHUT)
    launcher.use("signals")
    launcher.do("interrupt(0.001)\naside(launch, 1000)")
    until(lambda: launcher.work().standing == 1)
    before = launcher.get("len(handled)")
    until(lambda: bool(launcher.get("len(handled)") > before + 500))
    assert (launcher.launches(), launcher.work().standing) == (0, 1)
    gate.set(GATE_METERED)
    assert launcher.get("joined()") == [SUCCESS]


def test_a_handler_that_jumps_out_of_a_standing_launch(
    node: Node, container: Container, gate: GateWriter
) -> None:
    """A thread whose signal handler left a standing launch by `siglongjmp` is held to its line as before."""
    gate.set(GATE_SHUT)
    with (
        beating(gate),
        node.run(compiled("at_gate"), container.environment, arguments=("jumping",)) as launcher,
    ):
        until(lambda: container.counts().works[0].gpus[0].standing == 1)
        os.kill(launcher.pid, signal.SIGALRM)
        assert launcher.answer() == ["alloc", str(OUT_OF_MEMORY)]
        assert launcher.end() == 0


def test_every_green_context_is_metered(launcher: Launcher) -> None:
    """Every green context is metered, and none leaves anything behind for the next one."""
    launcher.use("green")
    launcher.do("""
        for green in [green_on(0)[1] for _ in range(20)]:
            enter(green)
            assert launch(2000000) == 0
            must("cuCtxSynchronize")
            must("cuGreenCtxDestroy", green)
    """)
    until(lambda: launcher.work().launched_ns == 0)
    assert launcher.told_ns() >= 0.9 * launcher.executed_ns() > 30 * MS


def test_a_thread_that_ends_with_its_work_under_way(launcher: Launcher) -> None:
    """Work in the default stream of an ended thread is metered, and not mixed up with the next thread's."""
    launcher.do(f"""
        for _ in range({ROUNDS}):
            aside(launch, {LONG_MS * MS}, None, "cuLaunchKernel_ptsz")
            joined()
            time.sleep({0.75 * LONG_MS / 1000})  # some have ended, and work is always under way
    """)
    until(lambda: launcher.executed_ns() == ROUNDS * LONG_MS * MS)
    until(lambda: launcher.work().launched_ns == 0)
    assert launcher.told_ns() == pytest.approx(launcher.executed_ns(), rel=0.1)
