"""A process's death frees its memory at once; a word that the broker has yet to clear refuses no other process."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from plimsoll.broker.pages import COUNTS_DIR_VARIABLE, LIMITS_DIR_VARIABLE, Counts, Slot
from plimsoll.broker.wire import ContainerLines, Register
from plimsoll.broker.wire import Line as BrokerLine
from plimsoll.ids import GpuUuid
from tests.hook.broker.conftest import MAIN, POD, Broker
from tests.hook.lib.container import Container, Line
from tests.hook.lib.hammer import tell_context_bytes
from tests.hook.lib.program import MIB, OUT_OF_MEMORY, SUCCESS, Node, Program, compiled
from tests.servers.waiting import PATIENCE_S

SHORT_PROGRAMS: Final = 200
HELD_MIB: Final = 300
"""With a context of 64 MiB each short program holds 364 MiB, of a line of 500 MiB."""

LINE_BYTES: Final = 500 * MIB


@pytest.fixture(name="brief", scope="module")
def _brief() -> Path:
    return compiled("brief")


@pytest.fixture(name="lines")
def _lines(node: Node) -> list[Line]:
    return [Line(node.uuids[0], LINE_BYTES, 64 * MIB)]


def _result(node: Node, brief: Path, place: dict[str, str]) -> int:
    """Run a short program to its end, and see what it got."""
    done = subprocess.run(
        [brief, str(HELD_MIB)],
        env=node.environment(place),
        capture_output=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    return int(done.stdout)


@contextlib.contextmanager
def _staying(node: Node, brief: Path, place: dict[str, str], how: str = "stay") -> Iterator[Program]:
    """A program that has its memory, and ends with the block if not before."""
    with node.run(brief, place, arguments=(str(HELD_MIB), how)) as program:
        assert program.answer() == [str(SUCCESS)]
        yield program


def test_programs_one_after_the_other_all_run_without_a_broker(
    node: Node, container: Container, brief: Path
) -> None:
    """Without a broker, each of 200 short programs gets the memory that fits beside the living ones."""
    results = [_result(node, brief, container.environment) for _ in range(SHORT_PROGRAMS)]
    assert results == [SUCCESS] * SHORT_PROGRAMS
    assert container.used_bytes() == SHORT_PROGRAMS * (HELD_MIB + 64) * MIB


@pytest.mark.parametrize("is_stopped", [False, True])
async def test_programs_one_after_the_other_all_run_beside_a_broker(
    tmp_path: Path, node: Node, brief: Path, *, is_stopped: bool
) -> None:
    """The same holds beside a broker that clears slots later, or is stopped."""
    broker = Broker(tmp_path / "root", {})
    try:
        await broker.start()
        line = BrokerLine(gpu=GpuUuid(node.uuids[0]), line_bytes=LINE_BYTES)
        lines = ContainerLines(name=MAIN, lines=(line,))
        await broker.client.register(
            Register(pod=POD, namespace="default", name="brief", containers=(lines,))
        )
        tell_context_bytes(broker.limits_dir() / "limits", 64 * MIB)
        if is_stopped:
            os.kill(broker.pid, signal.SIGSTOP)
        place = {
            LIMITS_DIR_VARIABLE: str(broker.limits_dir()),
            COUNTS_DIR_VARIABLE: str(broker.counts_dir()),
        }
        results = [_result(node, brief, place) for _ in range(SHORT_PROGRAMS)]
        assert results == [SUCCESS] * SHORT_PROGRAMS
    finally:
        await broker.close()


def test_a_zombie_holds_nothing(node: Node, container: Container, brief: Path) -> None:
    """A dead process that its parent has not reaped does not count."""
    with _staying(node, brief, container.environment) as dead:
        os.kill(dead.pid, signal.SIGKILL)
        os.waitid(os.P_PID, dead.pid, os.WEXITED | os.WNOWAIT)
        assert _result(node, brief, container.environment) == SUCCESS


def test_a_process_whose_first_thread_is_gone_still_counts(
    node: Node, container: Container, brief: Path
) -> None:
    """A zombie whose other threads live holds its memory, and the line holds."""
    with _staying(node, brief, container.environment, "leader") as alive:
        while Path(f"/proc/{alive.pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0] != "Z":
            pass
        assert _result(node, brief, container.environment) == OUT_OF_MEMORY
        assert node.held_bytes({alive.pid}) == (HELD_MIB + 64) * MIB


def test_the_living_count(node: Node, container: Container, brief: Path) -> None:
    """Beside a living process the next one is refused, however many died before it."""
    assert _result(node, brief, container.environment) == SUCCESS
    with _staying(node, brief, container.environment):
        assert _result(node, brief, container.environment) == OUT_OF_MEMORY


def test_a_process_of_another_namespace_counts(node: Node, container: Container, brief: Path) -> None:
    """A pid that means another process in that namespace proves no death here."""
    assert _result(node, brief, container.environment) == SUCCESS
    offset = Counts.slots.offset + Slot.namespaces.offset
    with (container.counts_dir / "counts").open("r+b") as file:
        file.seek(offset)
        word = int.from_bytes(file.read(8), "little")
        file.seek(offset)
        file.write((word ^ 1).to_bytes(8, "little"))
    assert _result(node, brief, container.environment) == OUT_OF_MEMORY


def test_under_overcommit_a_death_is_no_reason_to_wait(
    node: Node, container: Container, lines: list[Line], brief: Path
) -> None:
    """A request that fits below the grant beside the living ones is granted at once, without a broker."""
    container.rewrite([replace(line, granted_bytes=400 * MIB) for line in lines])
    results = [_result(node, brief, container.environment) for _ in range(3)]
    assert results == [SUCCESS] * 3
