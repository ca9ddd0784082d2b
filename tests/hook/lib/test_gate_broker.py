"""Programs go on when a broker goes, stops or comes back, and when they close all descriptors."""

from collections.abc import Iterator
from pathlib import Path
from time import sleep

import pytest

from plimsoll.broker.pages import GATE_METERED, GATE_OPEN, GATE_SHUT
from tests.hook.lib.container import Container
from tests.hook.lib.gate import GateWriter, beating, until
from tests.hook.lib.launcher import Launcher, launching
from tests.hook.lib.program import SUCCESS, Node

SHORT_S = 0.3
LOST = "not enforced until it is back"


@pytest.fixture(name="gate")
def _gate(container: Container) -> GateWriter:
    return GateWriter(container, GATE_SHUT)


@pytest.fixture(name="launcher")
def _launcher(node: Node, container: Container, gate: GateWriter, tmp_path: Path) -> Iterator[Launcher]:
    """A program whose broker shows no beat but where the test does."""
    with launching(node, container, tmp_path) as launcher:
        gate.beat()
        yield launcher


def _errors(tmp_path: Path) -> str:
    return (tmp_path / "script-errors").read_text()


def test_a_broker_without_a_beat_holds_nobody(launcher: Launcher, gate: GateWriter, tmp_path: Path) -> None:
    """Launches go once the beat has stood still for three seconds. A single message reports that."""
    with beating(gate):
        launcher.do("aside(launch, 1000)")
        until(lambda: launcher.work().standing == 1)
        sleep(SHORT_S)
        assert launcher.launches() == 0
    assert launcher.get("joined()") == [SUCCESS]
    assert launcher.get("[launch(1000) for _ in range(100)]") == [SUCCESS] * 100
    assert _errors(tmp_path).count(LOST) == 1


def test_a_broker_that_is_back_is_obeyed(launcher: Launcher, gate: GateWriter, tmp_path: Path) -> None:
    """Once the beat goes on, launches stand behind the shut gate again. One message reports that each time."""
    for number in range(1, 3):
        launcher.do("launch(1000); sync()")
        until(lambda: _errors(tmp_path).count(LOST) == number)  # noqa: B023 - called at once
        with beating(gate):
            launches = launcher.launches()
            launcher.do("aside(launch, 1000)")
            until(lambda: launcher.work().standing == 1)
            sleep(SHORT_S)
            assert launcher.launches() == launches
            assert _errors(tmp_path).count("is back: compute shares are enforced again") == number
            gate.set(GATE_METERED)
            assert launcher.get("joined()") == [SUCCESS] * number
            gate.set(GATE_SHUT)


def test_an_open_gate_needs_no_beat(launcher: Launcher, gate: GateWriter, tmp_path: Path) -> None:
    """Behind an open gate a lost broker has no effect, and causes no message."""
    gate.set(GATE_OPEN)
    sleep(4)
    assert launcher.get("[launch(1000) for _ in range(1000)]") == [SUCCESS] * 1000
    assert _errors(tmp_path) == ""


def test_signals_without_rest_hide_no_lost_broker(launcher: Launcher) -> None:
    """A launch whose every sleep is ended early by a signal notices that the beat stands still."""
    launcher.use("signals")
    launcher.do("interrupt(0.01)")
    assert launcher.get("launch(1000)") == SUCCESS


def test_work_launched_without_a_broker_is_metered_by_the_next(
    launcher: Launcher, gate: GateWriter, tmp_path: Path
) -> None:
    """From the moment the beat goes on, the page has the rest of the work launched without a broker."""
    launcher.do("launch(1000); sync()")
    until(lambda: LOST in _errors(tmp_path))
    launcher.do("aside(greedy, 5000000, 30)")
    until(lambda: launcher.executed_ns() > 50_000_000)
    assert launcher.work().launched_ns == 0
    with beating(gate):
        until(lambda: launcher.work().launched_ns > 0)
        until(lambda: launcher.work().standing == 1)
        gate.set(GATE_METERED)
        launcher.do("over.set(); joined()")
        until(lambda: launcher.work().launched_ns == 0)
    assert launcher.told_ns() > 0


@pytest.mark.parametrize("after", ["closed", "reused"])
def test_a_program_that_closes_all_descriptors(
    launcher: Launcher, gate: GateWriter, tmp_path: Path, after: str
) -> None:
    """After a closefrom the gate holds and releases as before, and no file of the program is written to."""
    kept = tmp_path / "kept"
    with beating(gate):
        launcher.do(f"""
            os.closerange(100, 200)
            file = os.open({str(kept)!r}, os.O_CREAT | os.O_RDWR)
            if {after!r} == "reused":
                for fd in range(100, 110):
                    os.dup2(file, fd)
            aside(launch, 1000)
        """)
        until(lambda: launcher.work().standing == 1)
        sleep(SHORT_S)
        assert launcher.launches() == 0
        gate.set(GATE_METERED)
        assert launcher.get("joined()") == [SUCCESS]
    assert kept.read_bytes() == b""
