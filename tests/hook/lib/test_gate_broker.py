"""A broker that goes, stops or comes back, and a connection that the program closes: programs go on."""

from pathlib import Path
from time import sleep

import pytest

from plimsoll.layout import GATE_METERED, GATE_SHUT, SHARE_WANTS
from tests.hook.lib.container import Container
from tests.hook.lib.gate import Keeper, listening, until
from tests.hook.lib.launcher import Launcher
from tests.hook.lib.program import SUCCESS

MS = 1_000_000


@pytest.fixture(name="gate")
def _gate(container: Container) -> Keeper:
    return Keeper(container, GATE_SHUT)


def _errors(tmp_path: Path) -> str:
    return (tmp_path / "script-errors").read_text()


def test_a_broker_that_dies_lets_its_waiters_go(
    launcher: Launcher, container: Container, gate: Keeper, tmp_path: Path
) -> None:
    """A launch that waits at a dead broker's gate goes on, and so do the next; standard error says it once."""
    with listening(container) as ear:
        launcher.do("aside(launch, 1000)")
        ear.wanted(gate.word)
        sleep(0.3)
        assert launcher.launches() == 0
    assert launcher.get("joined()") == [SUCCESS]
    assert launcher.get("launch(1000)") == SUCCESS
    assert _errors(tmp_path).count("not enforced until it is back") == 1


def test_a_broker_that_gives_no_sign_of_life(
    launcher: Launcher, container: Container, gate: Keeper, tmp_path: Path
) -> None:
    """A stopped broker keeps its connection, but its beat stands still: after three seconds launches pass."""
    with listening(container) as ear:
        launcher.do("aside(launch, 1000)")
        ear.wanted(gate.word)
        assert launcher.get("joined()") == [SUCCESS]
        assert "gives no sign of life" in _errors(tmp_path)
        gate.beat()
        until(lambda: "is back" in _errors(tmp_path))
        launcher.do("aside(launch, 1000)")
        ear.wait_for(
            lambda report: (report.gate_word == gate.word and report.busy_ns > 0) or len(ear.reports) > 3
        )
        gate.set(GATE_METERED)
        assert launcher.get("joined()") == [SUCCESS] * 2


def test_a_beat_keeps_a_launch_waiting(launcher: Launcher, container: Container, gate: Keeper) -> None:
    """As long as the broker lives a launch waits, however long that takes."""
    with listening(container) as ear:
        launcher.do("aside(launch, 1000)")
        ear.wanted(gate.word)
        for _ in range(9):
            sleep(0.5)
            gate.beat()
        assert launcher.launches() == 0
        gate.set(GATE_METERED)
        assert launcher.get("joined()") == [SUCCESS]


def test_the_next_broker_is_obeyed(
    launcher: Launcher, container: Container, gate: Keeper, tmp_path: Path
) -> None:
    """A new broker on the old page hears of every process, of work that was launched meanwhile, and of who waits."""
    with listening(container) as ear:
        ear.drained(gate.word)
    until(lambda: "not enforced until it is back" in _errors(tmp_path))
    launcher.do(f"[launch({5 * MS}) for _ in range(200)]")  # most of which are left once the book is read
    with listening(container) as ear:
        word = gate.set(GATE_SHUT)
        booked = launcher.unfinished_ns()
        ear.drained(word)
        assert launcher.unfinished_ns() - booked > 50 * MS
        launches = launcher.launches()
        launcher.do("aside(launch, 1000)")
        ear.wanted(word)
        assert launcher.launches() == launches
        gate.set(GATE_METERED)
        assert launcher.get("joined()") == [SUCCESS]


def test_a_broker_that_hangs_up_and_listens(launcher: Launcher, container: Container, gate: Keeper) -> None:
    """Who finds the connection ended makes a new one at once and says again that it waits; nothing passes."""
    with listening(container) as ear:
        launcher.do("aside(launch, 1000)")
        ear.wanted(gate.word)
        ear.hang_up()
        until(lambda: len([r for r in ear.reports if r.share_state & SHARE_WANTS]) > 1)
        assert launcher.launches() == 0
        gate.set(GATE_METERED)
        assert launcher.get("joined()") == [SUCCESS]


@pytest.mark.parametrize("after", ["closed", "reused"])
def test_a_program_that_closes_all_descriptors(
    launcher: Launcher, container: Container, gate: Keeper, tmp_path: Path, after: str
) -> None:
    """After a closefrom the library makes a new connection, and writes into no file that has its old number."""
    kept = tmp_path / "kept"
    with listening(container) as ear:
        ear.drained(gate.word)
        launcher.do(f"""
            ours = [int(fd) for fd in os.listdir("/proc/self/fd") if int(fd) >= 100]
            assert len(ours) == 1
            os.closerange(100, 200)
            file = os.open({str(kept)!r}, os.O_CREAT | os.O_RDWR)
            if {after!r} == "reused":
                for fd in range(100, 110):
                    os.dup2(file, fd)
        """)
        word = gate.set(GATE_SHUT)
        ear.drained(word)
        launcher.do("aside(launch, 1000)")
        ear.wanted(word)
        gate.set(GATE_METERED)
        assert launcher.get("joined()") == [SUCCESS]
    assert kept.read_bytes() == b""
    assert launcher.get("os.fstat(file).st_size") == 0


def test_the_connection_stays_out_of_children(launcher: Launcher, container: Container, gate: Keeper) -> None:
    """A program that this one executes inherits no connection, and a forked child gives its copy up."""
    with listening(container) as ear:
        ear.drained(gate.word)
        launcher.do("""
            import subprocess
            listed = "import os; print([fd for fd in os.listdir('/proc/self/fd') if int(fd) >= 100])"
            told = subprocess.run([sys.executable, "-c", listed], capture_output=True, text=True, close_fds=False)
            child = os.fork()
            if child == 0:
                os._exit(len([fd for fd in os.listdir("/proc/self/fd") if int(fd) >= 100]))
            status = os.waitpid(child, 0)[1]
        """)
        assert launcher.get("[told.stdout, status]") == ["[]\n", 0]
        assert ear.standing == 1
