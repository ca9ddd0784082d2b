"""The words of a process's work are whole at every moment, only grow, and end with the process."""

import ctypes
import mmap
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from time import monotonic, sleep

import pytest

from plimsoll.broker.pages import COUNTS_NAME, GATE_METERED, GATE_OPEN, GATE_SHUT, Counts, SlotWork, Work
from tests.hook.lib.container import Container
from tests.hook.lib.gate import GateWriter, beating, until
from tests.hook.lib.launcher import Launcher, launching
from tests.hook.lib.program import SUCCESS, Node

MS = 1_000_000
READING_S = 6
WORDS = tuple(name for name, _ in Work._fields_)
LAST = WORDS.index("begun")


class Page:
    """The words of one slot as they stand, read upwards through memory as readers must."""

    def __init__(self, container: Container, slot: int) -> None:
        with (container.counts_dir / COUNTS_NAME).open("rb") as file:
            self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        offset = Counts.works.offset + slot * ctypes.sizeof(SlotWork) + SlotWork.gpus.offset
        # As whole words: a copy of bytes might tear them.
        self._words = memoryview(self._bytes)[offset : offset + ctypes.sizeof(Work)].cast("Q")

    def consistent(self) -> Work | None:
        """A copy; None where the process was writing meanwhile."""
        words = [self._words[index] for index in range(len(WORDS))]
        return Work(*words) if words[0] == words[LAST] else None


def _follows(before: Work, after: Work) -> bool:
    """Whether one copy may be later than the other; a burst lasts until its length stands in the sums."""
    grew = after.unfinished_ns - before.unfinished_ns
    executed = after.sure_ns + after.sliced_ns - before.sure_ns - before.sliced_ns
    return bool(
        after.settled >= before.settled
        and after.sure_ns >= before.sure_ns
        and after.sliced_ns >= before.sliced_ns
        and grew >= executed
        and (after.executed_ns == 0 or after.executed_ns >= after.launched_ns > 0)
        and (after.settled != before.settled or grew == 0)
    )


def test_every_copy_is_whole_and_the_sums_only_grow(launcher: Launcher, container: Container) -> None:
    """Every copy of the page, read while bursts begin and end, is consistent."""
    launcher.do("launch(1000); sync()")
    page = Page(container, container.slot_of(launcher.pid))
    launcher.do("""
        streams = [make("cuStreamCreate", 1) for _ in range(3)]
        for stream in streams: aside(greedy, 10000, 60, True, 1.0, 0.02, stream)
    """)
    first = before = launcher.work()
    copies, end = 0, monotonic() + READING_S
    while monotonic() < end:
        after = page.consistent()
        if after is not None:
            assert _follows(before, after), [
                {name: getattr(work, name) for name in WORDS} for work in (before, after)
            ]
            copies, before = copies + 1, after
    launcher.do("over.set(); joined()")
    assert copies > 1000
    assert before.settled > first.settled + 1000


def test_a_swinging_gate_tears_no_copy(launcher: Launcher, container: Container, gate: GateWriter) -> None:
    """A swinging gate ends and begins bursts: sums grow, by at most the elapsed time."""
    launcher.do("launch(1000); sync()")
    page = Page(container, container.slot_of(launcher.pid))
    before, begun = launcher.work(), monotonic()
    launcher.do("aside(greedy, 50000, 60)")
    while monotonic() - begun < READING_S:
        for state in (GATE_METERED, GATE_SHUT, GATE_OPEN):
            gate.set(state)
            sleep(0.003)
            after = page.consistent()
            assert after is None or _follows(before, after)
            before = after or before
    gate.set(GATE_METERED)
    launcher.do("over.set(); joined()")
    until(lambda: launcher.work().launched_ns == 0)
    assert 0 < launcher.work().unfinished_ns < (monotonic() - begun) * 1e9


def test_who_is_killed_leaves_words_that_are_nobodys(
    launcher: Launcher, node: Node, container: Container, tmp_path: Path
) -> None:
    """A dead process's words stay under its owner until its slot is cleared. The next owner begins anew."""
    launcher.do("aside(greedy, 5000000, 60)")
    until(lambda: launcher.work().launched_ns > 0)
    slot = container.slot_of(launcher.pid)
    owner = container.counts().works[slot].owner
    launcher.kill()
    work = container.counts().works[slot]
    assert (work.owner, work.gpus[0].settled) == (owner, work.gpus[0].begun)
    container.store_owners([0])
    root = tmp_path / "next"
    root.mkdir()
    with launching(node, container, root) as other:
        assert container.slot_of(other.pid) == slot
        assert container.counts().works[slot].owner != owner
        assert other.told_ns() == other.work().launched_ns == 0
        assert other.get("launch(1000)") == SUCCESS


def test_an_exec_ends_what_was_under_way(launcher: Launcher, container: Container, gate: GateWriter) -> None:
    """A process that execs another program with CUDA keeps its slot, and no earlier words."""
    launcher.do("aside(greedy, 5000000, 60)")
    until(lambda: launcher.work().launched_ns > 0)
    slot = container.slot_of(launcher.pid)
    gate.set(GATE_SHUT)
    launcher.do("""
        program = [sys.executable, "-m", "tests.hook.lib.programs.again"]
        threading.Timer(0.2, lambda: os.execv(sys.executable, program)).start()
    """)
    until(lambda: container.slot_of(launcher.pid) == slot and launcher.work().begun == 0)
    work = launcher.work()
    assert (work.launched_ns, work.standing, work.queued_ns, work.unfinished_ns) == (0, 0, 0, 0)
    launcher.kill()


def test_a_forked_child_tells_nothing_of_itself(launcher: Launcher) -> None:
    """A child that runs beside its parent's bursts leaves the page alone."""
    launcher.use("steps")
    assert launcher.get("work_beside_children(5)") == [0] * 5
    until(lambda: launcher.work().launched_ns == 0)
    assert launcher.work().standing == 0
    assert launcher.told_ns() == pytest.approx(launcher.executed_ns(), rel=0.05)


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGUSR1])
def test_signals_leave_the_page_whole(
    launcher: Launcher, container: Container, number: signal.Signals
) -> None:
    """A process that is stopped and continued, or always handles signals, counts its execution correctly."""
    launcher.do("import signal; signal.signal(signal.SIGUSR1, lambda *_: None); launch(1000); sync()")
    launcher.do("aside(greedy, 1000000, 60, True)")
    for _ in range(50):
        os.kill(launcher.pid, number)
        sleep(0.01)
        os.kill(launcher.pid, signal.SIGCONT)
        sleep(0.01)
    launcher.do("over.set(); joined()")
    page = Page(container, container.slot_of(launcher.pid))
    until(lambda: (work := page.consistent()) is not None and work.launched_ns == 0)
    assert launcher.told_ns() == pytest.approx(launcher.executed_ns(), rel=0.1)


@pytest.fixture(name="beats", autouse=True)
def _beats(gate: GateWriter) -> Iterator[None]:
    with beating(gate):
        yield
