"""A gate that is not open holds every launch, and nothing else; an open one is not noticed."""

import os
import signal
from pathlib import Path
from time import sleep

import pytest

from plimsoll.layout import FLAG_WHOLE_GPUS, GATE_CONTENDED, GATE_METERED, GATE_OPEN, GATE_SHUT, SHARE_WANTS
from tests.hook.lib.conftest import compile_c
from tests.hook.lib.container import Container, Line, limits_of
from tests.hook.lib.gate import Keeper, Listener, gate_path
from tests.hook.lib.launcher import Launcher, launching
from tests.hook.lib.program import EMULATOR, NOT_INITIALIZED, SUCCESS, Node

pytestmark = pytest.mark.usefixtures("ear")  # which hears from the first launch on

PATHS = (
    "cuLaunchKernel",
    "cuLaunchKernel_ptsz",
    "cuLaunchKernelEx",
    "cuLaunchKernelEx_ptsz",
    "cuLaunchCooperativeKernel",
    "cuLaunchCooperativeKernel_ptsz",
    "cuLaunchCooperativeKernelMultiDevice",
    "cuLaunch",
    "cuLaunchGrid",
    "cuLaunchGridAsync",
    "cuGraphLaunch",
    "cuGraphLaunch_ptsz",
)
MS = 1_000_000


@pytest.fixture(name="gate")
def _gate(container: Container) -> Keeper:
    return Keeper(container, GATE_OPEN)


def test_an_open_gate_is_not_noticed(launcher: Launcher, ear: Listener) -> None:
    """While the gate is open nothing is metered, reported or connected."""
    assert launcher.get("[launch(1000000, name=name) for name in PATHS]") == [SUCCESS] * len(PATHS)
    launcher.do("sync()")
    assert (launcher.launches(), launcher.busy_ns, launcher.busy_since_ns) == (len(PATHS), 0, 0)
    assert ear.reports == []
    assert not launcher.get("[fd for fd in os.listdir('/proc/self/fd') if int(fd) >= 100]")


@pytest.mark.parametrize("path", PATHS)
def test_a_shut_gate_holds_every_launch(launcher: Launcher, gate: Keeper, ear: Listener, path: str) -> None:
    """Whatever the way, a launch waits at a shut gate, says so, and goes when it is opened or metered."""
    for number, state in enumerate((GATE_OPEN, GATE_METERED)):
        word = gate.set(GATE_SHUT)
        launcher.do(f"aside(launch, 1000, None, {path!r})")
        ear.wanted(word)
        sleep(0.05)
        assert launcher.launches() == number
        gate.set(state)
        assert launcher.get("joined()") == [SUCCESS] * (number + 1)
        assert launcher.launches() == number + 1


def test_a_capture_does_not_wait(launcher: Launcher, gate: Keeper, ear: Listener) -> None:
    """Into a stream that captures, a launch is recorded at once, whatever the gate."""
    word = gate.set(GATE_SHUT)
    launcher.do("""
        stream, graph, count = make("cuStreamCreate", 1), U64(), SIZE()
        must("cuStreamBeginCapture_v2", stream, 0)
        assert [launch(1000, stream) for _ in range(3)] == [0] * 3
        must("cuStreamEndCapture", stream, byref(graph))
        must("cuGraphGetNodes", graph, None, byref(count))
    """)
    assert launcher.get("count.value") == 3
    ear.drained(word)
    assert not [report for report in ear.reports if report.share_state & SHARE_WANTS]


def test_captures_live_through_every_change_of_the_gate(launcher: Launcher, gate: Keeper) -> None:
    """What the library asks of the driver meanwhile breaks no capture, of the strictest mode."""
    launcher.do("""
        def capture(seconds):
            stream, graph, end, count = make("cuStreamCreate", 1), U64(), time.monotonic() + seconds, 0
            while time.monotonic() < end:
                must("cuStreamBeginCapture_v2", stream, 0)
                for _ in range(20):
                    assert launch(1000, stream) == 0
                must("cuStreamEndCapture", stream, byref(graph))
                must("cuGraphDestroy", graph)
                count += 1
            return count

        def replay(seconds):
            stream, end = make("cuStreamCreate", 1), time.monotonic() + seconds
            while time.monotonic() < end:
                assert launch(200000, stream) == 0
            return True

        aside(capture, 2), aside(replay, 2)
    """)
    while launcher.get("any(thread.is_alive() for thread in threads)"):
        for state in (GATE_SHUT, GATE_METERED, GATE_METERED | GATE_CONTENDED, GATE_SHUT, GATE_OPEN):
            gate.set(state)
            sleep(0.01)
    captured, is_replayed = launcher.get("joined()")
    assert captured > 0
    assert is_replayed


def test_whole_gpus_have_no_gate(
    node: Node, container: Container, gate: Keeper, lines: list[Line], tmp_path: Path
) -> None:
    """A container that owns its GPUs is never held back, whatever lies in its directory."""
    container.write(limits_of(lines, flags=FLAG_WHOLE_GPUS))
    gate.set(GATE_SHUT)
    with launching(node, container, tmp_path) as launcher:
        assert launcher.get("launch(1000)") == SUCCESS


def test_a_share_without_a_gate_is_said(
    node: Node, container: Container, lines: list[Line], tmp_path: Path
) -> None:
    """Where a share was promised and no gate holds anybody to it, standard error says so; launches pass."""
    limits = limits_of(lines)
    limits.gpus[0].share_pct = 30
    container.write(limits)
    assert not gate_path(container).exists()
    with launching(node, container, tmp_path) as launcher:
        assert launcher.get("launch(1000)") == SUCCESS
    assert "no valid gate" in (tmp_path / "script-errors").read_text()


def test_a_forked_child_is_free_of_its_parents_gate(launcher: Launcher, gate: Keeper, ear: Listener) -> None:
    """A child that is forked while threads wait at the gate neither waits nor reports, and leaves the words alone."""
    word = gate.set(GATE_SHUT)
    launcher.do("aside(launch, 1000)")
    ear.wanted(word)
    launcher.do("""
        child = os.fork()
        if child == 0:
            os._exit(0 if launch(1000) == 3 else 1)
        status = os.waitpid(child, 0)[1]
    """)
    assert NOT_INITIALIZED == 3
    assert launcher.get("status") == 0
    assert launcher.launches() == 0
    gate.set(GATE_OPEN)
    assert launcher.get("joined()") == [SUCCESS]


def test_a_handler_that_forks_while_a_launch_waits(
    node: Node, container: Container, gate: Keeper, ear: Listener, tmp_path: Path
) -> None:
    """Signals are handled while a launch waits; a child that a handler forks there does not go on waiting."""
    source, program = Path(__file__).parent / "programs/forking_waiter.c", tmp_path / "forking_waiter"
    compile_c([source], program, [f"-L{EMULATOR}", "-l:libcuda.so.1"])
    word = gate.set(GATE_SHUT)
    with node.run(program, container.environment) as waiter:
        assert waiter.answer() == ["ready"]
        ear.wanted(word)
        for _ in range(3):
            os.kill(waiter.pid, signal.SIGUSR1)
            assert waiter.answer() == ["child", "7"]
        assert len(ear.reports) == len({bytes(report) for report in ear.reports})
        gate.set(GATE_METERED)
        assert waiter.answer() == ["launch", "0"]
        assert waiter.end() == 0


@pytest.mark.parametrize("state", [GATE_OPEN, GATE_METERED, GATE_METERED | GATE_CONTENDED, GATE_SHUT])
def test_a_program_ends_in_any_state(launcher: Launcher, gate: Keeper, ear: Listener, state: int) -> None:
    """Exit is exit: with work under way, metered, shut, and with a thread that waits at the gate."""
    gate.set(GATE_METERED)
    launcher.do("[launch(1000000) for _ in range(20)]")
    word = gate.set(state)
    if state == GATE_SHUT:
        launcher.do("""
            waiter = threading.Thread(target=lambda: (must("cuCtxSetCurrent", primary), launch(1000)), daemon=True)
            waiter.start()
        """)
        ear.wanted(word)
    assert launcher.ended() == 0
