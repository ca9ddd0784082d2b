"""Threads that are cancelled or disturbed at a gate, contexts and brokers that go: nothing hangs, nothing is lost."""

from pathlib import Path

import pytest

from plimsoll.layout import GATE_CONTENDED, GATE_METERED, GATE_SHUT
from tests.hook.lib.conftest import compile_c
from tests.hook.lib.container import Container
from tests.hook.lib.gate import Keeper, listening, until
from tests.hook.lib.launcher import Launcher
from tests.hook.lib.program import EMULATOR, SUCCESS, Node
from tests.hook.lib.test_contexts import HELPERS as GREEN

MS = 1_000_000


@pytest.fixture(name="gate")
def _gate(container: Container) -> Keeper:
    return Keeper(container, GATE_METERED)


def test_a_thread_that_is_cancelled_at_the_gate(
    node: Node, container: Container, gate: Keeper, tmp_path: Path
) -> None:
    """A cancelled thread leaves the gate with its launch done and no lock kept: the next launch waits and goes.

    Its library's own thread starts beside thread-local data that are larger than the stack it asks for.
    """
    source, program = Path(__file__).parent / "programs/cancelled_waiter.c", tmp_path / "cancelled_waiter"
    compile_c([source], program, [f"-L{EMULATOR}", "-l:libcuda.so.1", "-lpthread"])
    word = gate.set(GATE_SHUT)
    with listening(container) as ear, node.run(program, container.environment) as waiter:
        ear.wanted(word)
        ear.drained(word)
        gate.set(GATE_METERED)
        assert waiter.answer() == ["ended", "1"]
        assert waiter.answer() == ["launch", "0"]
        assert waiter.end() == 0
        assert waiter.errors() == ""


def test_signals_without_rest_hide_no_lost_broker(
    launcher: Launcher, container: Container, gate: Keeper
) -> None:
    """A launch whose every sleep is ended early by a signal sees all the same that the broker's beat stands still."""
    with listening(container) as ear:
        ear.drained(gate.set(GATE_SHUT))
        launcher.do("""
            import signal
            signal.signal(signal.SIGALRM, lambda *_: None)
            signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
        """)
        assert launcher.get("launch(1000)") == SUCCESS


def test_a_broker_that_was_never_there_is_missed(launcher: Launcher, gate: Keeper, tmp_path: Path) -> None:
    """A report that nobody took is told again; where nobody takes that either, the broker is lost, and it is said."""
    gate.set(GATE_METERED | GATE_CONTENDED)
    until(lambda: "not enforced until it is back" in (tmp_path / "script-errors").read_text())
    assert launcher.get("launch(1000)") == SUCCESS


def test_every_green_context_is_metered(launcher: Launcher) -> None:
    """Green contexts that come and go are metered to the last: none leaves anything behind for the next one."""
    launcher.do(GREEN)
    launcher.do("""
        for green in [green_on(0)[1] for _ in range(20)]:
            enter(green)
            assert launch(2000000) == 0
            must("cuCtxSynchronize")
            must("cuGreenCtxDestroy", green)
    """)
    until(lambda: launcher.busy_since_ns == 0)
    assert launcher.busy_ns >= 0.9 * launcher.unfinished_ns() > 30 * MS
