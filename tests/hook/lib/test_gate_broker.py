"""Programs go on when a broker goes, stops or comes back, and when they close all descriptors."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic_ns, sleep

import pytest

from plimsoll.broker.pages import GATE_METERED, GATE_OPEN, GATE_SHUT, LATE_NS, LOST_NS, SOCKET_NAME
from tests.hook.lib.container import Container, Line, limits_of
from tests.hook.lib.gate import AHEAD_US, GateWriter, beating, until
from tests.hook.lib.launcher import Launcher, launching
from tests.hook.lib.program import MIB, SUCCESS, Node

GATE = GATE_SHUT


SHORT_S = 0.3
LIMIT_PCT = 20
LOST = "not enforced until it is back"


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


LISTENER = """
import os, signal, socket
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
    os.chdir({directory!r})
    listener.bind({name!r})
    listener.listen(0)
    print("listening", flush=True)
    signal.pause()
"""


@pytest.fixture(name="listener")
def _listener(container: Container) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the container's socket, as a broker that accepts no connection."""
    code = LISTENER.format(directory=str(container.limits_dir), name=SOCKET_NAME)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as listener:
        assert listener.stdout is not None
        assert listener.stdout.readline() == "listening\n"
        try:
            yield listener
        finally:
            listener.kill()


def _late_until(state: Callable[[], bool], gate: GateWriter) -> None:
    """Keep the last beat late, but younger than a lost broker's, until a state."""

    def is_reached() -> bool:
        gate.beat(-LATE_NS - 10**8)
        return state()

    until(is_reached)


def _late_for_a_while(gate: GateWriter) -> None:
    """Keep the last beat late for longer than a launch needs to notice; anew if this process stood still."""
    longest_ns = LOST_NS
    while longest_ns > LOST_NS - 2 * LATE_NS:
        longest_ns, began_ns = 0, monotonic_ns()
        while (now_ns := monotonic_ns()) < began_ns + SHORT_S * 1e9:
            gate.beat(-LATE_NS - 10**8)
            sleep(0.005)
            longest_ns = max(longest_ns, monotonic_ns() - now_ns)


def test_a_broker_that_was_killed_holds_nobody(
    launcher: Launcher, gate: GateWriter, listener: subprocess.Popen[str], tmp_path: Path
) -> None:
    """With a late beat launches go once the broker's process has ended. A stopped broker still holds them."""
    files = launcher.get("len(os.listdir('/proc/self/fd'))")
    with beating(gate):
        launcher.do("aside(launch, 1000)")
        until(lambda: launcher.work().standing == 1)
        listener.send_signal(signal.SIGSTOP)
        _late_for_a_while(gate)
        assert launcher.launches() == 0
        listener.kill()
        _late_until(lambda: launcher.launches() == 1, gate)
    assert launcher.get("joined()") == [SUCCESS]
    assert launcher.get("len(os.listdir('/proc/self/fd'))") == files
    assert LOST in _errors(tmp_path)


@pytest.mark.parametrize(
    "unproved",
    [
        "resource.setrlimit(resource.RLIMIT_NOFILE, (3, 4096))",  # no descriptor is left
        "os.chdir(root); os.chroot('.')",  # the library's path leads nowhere
    ],
)
def test_a_program_that_cannot_ask_for_the_broker_waits_for_its_beat(
    launcher: Launcher, gate: GateWriter, listener: subprocess.Popen[str], tmp_path: Path, unproved: str
) -> None:
    """Where the library cannot prove that the broker has ended, the gate holds until the beat is too old."""
    if "chroot" in unproved and os.getuid() != 0:
        pytest.skip("only root may call chroot")
    launcher.do(f"import os, resource; root = {str(tmp_path)!r}")
    with beating(gate):
        launcher.do("aside(launch, 1000)")
        until(lambda: launcher.work().standing == 1)
        launcher.do(unproved)
        listener.kill()
        listener.wait()
        _late_for_a_while(gate)
        assert launcher.launches() == 0
    until(lambda: launcher.launches() == 1)
    assert launcher.get("joined()") == [SUCCESS]


@pytest.mark.parametrize("processes", [1, 2])
def test_without_a_broker_a_container_is_held_to_its_limit(
    node: Node, container: Container, tmp_path: Path, processes: int
) -> None:
    """The processes of a container together execute for their limit's part of the time. No launch stands for good."""
    limits = limits_of([Line(node.uuids[0], 1024 * MIB)])
    limits.gpus[0].limit_pct = LIMIT_PCT
    container.write(limits)
    GateWriter(container, GATE_SHUT).beat(-LOST_NS)
    with contextlib.ExitStack() as stack:
        roots = [tmp_path / str(number) for number in range(processes)]
        for root in roots:
            root.mkdir()
        launchers = [stack.enter_context(launching(node, container, root)) for root in roots]
        began_ns = monotonic_ns()
        for launcher in launchers:
            launcher.do("aside(greedy, 2000000, 3600)")
        until(lambda: all(launcher.executed_ns() > 150_000_000 for launcher in launchers))
        executed_ns = sum(launcher.executed_ns() for launcher in launchers)
        elapsed_ns = monotonic_ns() - began_ns
        for launcher in launchers:
            launcher.do("over.set(); joined()")
    assert executed_ns < elapsed_ns * (LIMIT_PCT + 5) / 100 + 2 * AHEAD_US * 1000 * processes


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
