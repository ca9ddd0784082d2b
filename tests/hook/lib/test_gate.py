"""Behind a shut gate every launch stands, and nothing else does. An open gate hardly costs anything."""

import os
import signal
from pathlib import Path
from time import sleep

import pytest

from plimsoll.broker.pages import FLAG_WHOLE_GPUS, GATE_METERED, GATE_OPEN, GATE_SHUT
from tests.hook.lib.container import Container, Line, limits_of
from tests.hook.lib.gate import GateWriter, beating, gate_path, until
from tests.hook.lib.launcher import Launcher, launching
from tests.hook.lib.program import NOT_INITIALIZED, SUCCESS, Node, compiled

GATE = GATE_OPEN


MS = 1_000_000
LONG_S = 5
"""Longer than anything in the library waits, but for a gate."""


def test_an_open_gate_is_hardly_noticed(launcher: Launcher) -> None:
    """While the gate is open the library reports nothing and takes no descriptor."""
    assert launcher.get("[launch(1000000) for _ in range(12)]") == [SUCCESS] * 12
    launcher.do("sync()")
    work = launcher.work()
    assert launcher.launches() == 12
    assert (work.settled, work.begun, work.launched_ns, work.standing) == (0, 0, 0, 0)
    assert not launcher.get("[fd for fd in os.listdir('/proc/self/fd') if int(fd) >= 100]")


def test_a_launch_stands_until_the_gate_opens_or_meters(launcher: Launcher, gate: GateWriter) -> None:
    """A launch stands behind a shut gate, is counted on the page, and goes when the gate opens or meters."""
    for number, state in enumerate((GATE_OPEN, GATE_METERED)):
        gate.set(GATE_SHUT)
        launcher.do("aside(launch, 1000)")
        until(lambda: launcher.work().standing == 1)
        sleep(0.05)
        assert launcher.launches() == number
        gate.set(state)
        assert launcher.get("joined()") == [SUCCESS] * (number + 1)
        assert (launcher.launches(), launcher.work().standing) == (number + 1, 0)


def test_a_launch_stands_however_long_the_gate_is_shut(launcher: Launcher, gate: GateWriter) -> None:
    """While nothing executes and the broker lives no launch goes; each of several standing threads is counted."""
    gate.set(GATE_SHUT)
    launcher.do("for _ in range(3): aside(launch, 1000)")
    until(lambda: launcher.work().standing == 3)
    sleep(LONG_S)
    assert (launcher.launches(), launcher.work().standing) == (0, 3)
    gate.set(GATE_METERED)
    assert launcher.get("joined()") == [SUCCESS] * 3


def test_whole_gpus_have_no_gate(
    node: Node, container: Container, gate: GateWriter, lines: list[Line], tmp_path: Path
) -> None:
    """A container that owns its GPUs is never held, whatever its directory contains."""
    container.write(limits_of(lines, flags=FLAG_WHOLE_GPUS))
    gate.set(GATE_SHUT)
    with launching(node, container, tmp_path) as launcher:
        assert launcher.get("launch(1000)") == SUCCESS


def test_a_share_without_a_gate_is_said(
    node: Node, container: Container, lines: list[Line], tmp_path: Path
) -> None:
    """If a share was promised and there is no gate, standard error says so, and launches pass."""
    limits = limits_of(lines)
    limits.gpus[0].share_pct = 30
    container.write(limits)
    assert not gate_path(container).exists()
    with launching(node, container, tmp_path) as launcher:
        assert launcher.get("launch(1000)") == SUCCESS
    assert "no valid gate" in (tmp_path / "script-errors").read_text()


def test_a_forked_child_is_free_of_its_parents_gate(launcher: Launcher, gate: GateWriter) -> None:
    """A child forked while threads stand neither stands itself nor changes the page."""
    gate.set(GATE_SHUT)
    launcher.do("aside(launch, 1000)")
    until(lambda: launcher.work().standing == 1)
    launcher.do("""
        child = os.fork()
        if child == 0:
            os._exit(0 if launch(1000) == 3 else 1)
        status = os.waitpid(child, 0)[1]
    """)
    assert NOT_INITIALIZED == 3
    assert launcher.get("status") == 0
    assert (launcher.launches(), launcher.work().standing) == (0, 1)
    gate.set(GATE_OPEN)
    assert launcher.get("joined()") == [SUCCESS]


def test_a_handler_that_forks_while_a_launch_stands(
    node: Node, container: Container, gate: GateWriter
) -> None:
    """Signals are handled while a launch stands, and a child that a handler forks there does not stand."""
    gate.set(GATE_SHUT)
    with (
        beating(gate),
        node.run(compiled("at_gate"), container.environment, arguments=("handling",)) as waiter,
    ):
        assert waiter.answer() == ["ready"]
        slot = container.slot_of(waiter.pid)
        until(lambda: container.counts().works[slot].gpus[0].standing == 1)
        for _ in range(3):
            os.kill(waiter.pid, signal.SIGUSR1)
            assert waiter.answer() == ["child", "7"]
        assert container.counts().works[slot].gpus[0].standing == 1
        gate.set(GATE_METERED)
        assert waiter.answer() == ["launch", "0"]
        assert waiter.end() == 0


@pytest.mark.parametrize("state", [GATE_OPEN, GATE_METERED, GATE_SHUT])
def test_a_program_ends_in_any_state(launcher: Launcher, gate: GateWriter, state: int) -> None:
    """A program exits with work under way, and with a standing thread."""
    gate.set(GATE_METERED)
    launcher.do("[launch(1000000) for _ in range(20)]")
    gate.set(state)
    if state == GATE_SHUT:
        until(lambda: launcher.work().launched_ns == 0)
        launcher.do("""
            waiter = threading.Thread(target=lambda: (must("cuCtxSetCurrent", primary), launch(1000)), daemon=True)
            waiter.start()
        """)
        until(lambda: launcher.work().standing == 1)
    assert launcher.ended() == 0
