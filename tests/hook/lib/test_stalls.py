"""Work that waits, on the device, for a launch at the shut gate gets it: who is behind follows who is ahead."""

from collections.abc import Iterator
from pathlib import Path
from time import sleep

import pytest

from plimsoll.layout import GATE_METERED, GATE_SHUT, SHARE_UNFINISHED, SHARE_WANTS
from tests.hook.lib.container import Container
from tests.hook.lib.gate import Keeper, listening, until
from tests.hook.lib.launcher import Launcher, launching
from tests.hook.lib.program import Node

MS = 1_000_000
SHORT_S = 0.3
"""Far more than anybody at the gate needs to find out that it may go."""

BOTH = """
second = make("cuDevicePrimaryCtxRetain", 1)
must("cuCtxSetCurrent", second)
there, second_stream, word = load(), make("cuStreamCreate", 1), make("cuMemAlloc_v2", SIZE(4))
must("cuMemsetD32_v2", word, 0, SIZE(1))
must("cuCtxSetCurrent", primary)
stream = make("cuStreamCreate", 1)


def launch_there(ns):
    must("cuLaunchKernel", there, 1, 1, 1, 1, 1, 1, 0, second_stream, parameters(ns), None)
"""
"""The second GPU, a word that streams can wait for, and a launch there."""


@pytest.fixture(name="gate")
def _gate(container: Container) -> Keeper:
    return Keeper(container, GATE_METERED)


@pytest.fixture(name="launcher")
def _launcher(node: Node, container: Container, gate: Keeper, tmp_path: Path) -> Iterator[Launcher]:
    assert gate.word
    with launching(node, container, tmp_path) as launcher:
        launcher.do(BOTH)
        yield launcher


def _stall(launcher: Launcher) -> None:
    """Launch on the first GPU what waits there for the word."""
    launcher.do(f"""
        must("cuStreamWaitValue32_v2", stream, word, 1, 0)
        launch({MS}, stream)
    """)


def _go_on(launcher: Launcher) -> None:
    launcher.do("""must("cuStreamWriteValue32_v2", second_stream, word, 1, 0)""")


def test_what_others_wait_for_goes_through_the_shut_gate(
    launcher: Launcher, container: Container, gate: Keeper
) -> None:
    """While work on one GPU is overdue, the other GPU's launches go, one by one; after that the next wants anew."""
    with listening(container) as ear:
        _stall(launcher)
        word = gate.set(GATE_SHUT)
        launcher.do(f"for _ in range(2): aside(launch_there, {MS}, context=second)")
        until(lambda: launcher.launches(1) == 2)
        _go_on(launcher)
        ear.drained(word)
        heard = len(ear.reports)
        launcher.do(f"aside(launch_there, {MS}, context=second)")
        until(lambda: any(report.share_state & SHARE_WANTS for report in ear.reports[heard:]))
        sleep(SHORT_S)
        assert launcher.launches(1) == 2
        gate.set(GATE_METERED)
        launcher.do("joined()")
        assert launcher.launches(1) == 3


def test_another_process_of_the_container_follows_as_well(
    launcher: Launcher, node: Node, container: Container, gate: Keeper, tmp_path: Path
) -> None:
    """One process's overdue work lets the other's launch go, which takes back first that it had drained."""
    root = tmp_path / "other"
    root.mkdir()
    with listening(container) as ear, launching(node, container, root) as other:
        other.do(BOTH)
        slot = container.slot_of(other.pid)
        _stall(launcher)
        word = gate.set(GATE_SHUT)
        ear.wait_for(
            lambda m: m.slot == slot and m.gate_word == word and not m.share_state & SHARE_UNFINISHED
        )
        other.do(f"aside(launch_there, {MS}, context=second); joined()")
        states = [
            m.share_state & SHARE_UNFINISHED for m in ear.reports if (m.slot, m.gate_word) == (slot, word)
        ]
        assert states[0] == 0
        assert SHARE_UNFINISHED in states
        until(lambda: not ear.reports[-1].share_state & SHARE_UNFINISHED)
        _go_on(launcher)


def test_nobody_follows_work_that_takes_its_time(
    launcher: Launcher, container: Container, gate: Keeper
) -> None:
    """Behind a long kernel that is not overdue, and after its end, the gate is as shut as any."""
    with listening(container) as ear:
        launcher.do(f"launch({400 * MS}, stream); must('cuStreamSynchronize', stream)")
        launcher.do(f"launch({400 * MS}, stream)")
        word = gate.set(GATE_SHUT)
        launcher.do(f"aside(launch_there, {MS}, context=second)")
        ear.drained(word)
        sleep(SHORT_S)
        assert launcher.launches(1) == 0
        gate.set(GATE_METERED)
        launcher.do("joined()")


def test_following_ends_when_the_broker_waits_no_longer(
    launcher: Launcher, container: Container, gate: Keeper
) -> None:
    """Work that never ends opens the shut gate for a second, and not for ever."""
    with listening(container) as ear:
        _stall(launcher)
        word = gate.set(GATE_SHUT)
        launcher.do(f"aside(launch_there, {MS}, context=second); joined()")
        sleep(1.2)
        before = launcher.launches(1)
        launcher.do(f"aside(launch_there, {MS}, context=second)")
        ear.wanted(word)
        sleep(SHORT_S)
        assert launcher.launches(1) == before == 1
        gate.set(GATE_METERED)
        launcher.do("joined()")
        _go_on(launcher)
