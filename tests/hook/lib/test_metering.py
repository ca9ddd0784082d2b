"""What is metered is what the GPU did, by the emulator's own book; and little is queued ahead."""

from collections.abc import Callable
from time import monotonic, monotonic_ns, sleep

import pytest

from plimsoll.layout import GATE_CONTENDED, GATE_METERED, GATE_OPEN, GATE_SHUT, SHARE_UNFINISHED, SHARE_WANTS
from tests.hook.lib.container import ANSWER_S, Container
from tests.hook.lib.gate import Keeper, Listener, until
from tests.hook.lib.launcher import Launcher
from tests.hook.lib.program import SUCCESS

pytestmark = pytest.mark.usefixtures("ear")  # which hears from the first launch on

US, MS = 1_000, 1_000_000
SECOND = 1_000_000_000
ONE_POINT = 0.01


@pytest.fixture(name="gate")
def _gate(container: Container) -> Keeper:
    return Keeper(container, GATE_METERED)


def _both_ns(launcher: Launcher, gpu: int = 0) -> tuple[int, int]:
    """Busy as metered and by the book, once all is done and said."""
    until(lambda: launcher.busy_since_ns == 0)
    return launcher.busy_ns, launcher.unfinished_ns(gpu)


def _until_agreed(
    launcher: Launcher, work: Callable[[], object], *, least_ns: int = 0, points: int = 1, gpu: int = 0
) -> None:
    """Work so much in all, and until what is metered of it is for once what the book says, within points of a second.

    A thread that loses the processor between an event of the library and its launch is metered meanwhile: where other
    things want the machine, some attempts fail.
    """
    seen: list[tuple[int, int]] = []
    end = monotonic() + ANSWER_S
    while (
        not seen
        or sum(booked for _, booked in seen) < least_ns
        or abs(seen[-1][0] - seen[-1][1]) >= points * ONE_POINT * SECOND
    ):
        assert monotonic() < end, f"metered and booked, each time: {seen}"
        metered_from, booked_from = _both_ns(launcher, gpu)
        work()
        metered, booked = _both_ns(launcher, gpu)
        seen.append((metered - metered_from, booked - booked_from))


@pytest.mark.parametrize("kernel_ns", [20 * US, MS, 20 * MS])
@pytest.mark.parametrize("way", ["queued", "one by one"])
@pytest.mark.parametrize("duty", [1.0, 0.5])
def test_what_is_metered_is_what_the_book_says(
    launcher: Launcher, kernel_ns: int, way: str, duty: float
) -> None:
    """For long and short kernels, queued or one by one, with pauses or without: within a point of the time."""
    launcher.do("launch(1000); sync()")
    work = f"greedy({kernel_ns}, 1.0, {way == 'one by one'}, {duty})"
    _until_agreed(launcher, lambda: launcher.do(work), least_ns=SECOND // 5)


def test_work_that_nobody_waits_for_is_metered(launcher: Launcher) -> None:
    """A program that launches and never synchronises is metered by the library's own thread."""

    def work() -> None:
        for _ in range(20):
            launcher.do(f"launch({5 * MS})")
            sleep(0.02)

    _until_agreed(launcher, work, least_ns=100 * MS)


def test_a_long_launch_behind_short_ones_is_metered(launcher: Launcher) -> None:
    """What follows dense short launches, in other streams, is metered by what it takes and not by what they took."""
    launcher.do("streams = [make('cuStreamCreate', 1) for _ in range(3)]")
    work = f"""
        for _ in range(100):
            for number in range(9):
                launch({20 * US}, streams[number % 3])
            launch({3 * MS}, streams[0])
            time.sleep(0.008)
    """
    _until_agreed(launcher, lambda: launcher.do(work), least_ns=300 * MS, points=3)


@pytest.mark.parametrize("kernel_ns", [20 * US, MS])
def test_little_is_queued_ahead(launcher: Launcher, gate: Keeper, ear: Listener, kernel_ns: int) -> None:
    """After the gate is shut a greedy program's queue lasts as long as the run-ahead says, and then nothing runs."""
    launcher.do(f"aside(greedy, {kernel_ns}, 30)")
    until(lambda: launcher.unfinished_ns() > SECOND // 2)
    read_ns = monotonic_ns()
    booked = launcher.unfinished_ns()
    word = gate.set(GATE_SHUT)
    reading_ns = monotonic_ns() - read_ns
    ear.drained(word)
    at_end = launcher.unfinished_ns()
    assert at_end - booked < 20 * MS + reading_ns  # while the book was read it went on
    launches = launcher.launches()
    sleep(0.1)
    assert (launcher.launches(), launcher.unfinished_ns()) == (launches, at_end)
    launcher.do("is_over = True")
    gate.set(GATE_OPEN)
    launcher.do("joined()")


@pytest.mark.parametrize("short", ["launch(1000)", "[launch(5000) for _ in range(200)]"])
def test_long_launches_are_not_queued_by_what_short_ones_took(launcher: Launcher, short: str) -> None:
    """A program whose kernels suddenly take 20 ms has a few dozen of them queued, and not hundreds."""
    launcher.do(f"{short}; sync()")
    before = launcher.launches()
    launcher.do(f"aside(greedy, {20 * MS}, 30)")
    until(lambda: launcher.unfinished_ns() > SECOND // 5)
    assert 10 <= launcher.launches() - before < 150
    launcher.do("is_over = True; joined()")


def test_a_drained_report_tells_all(launcher: Launcher, gate: Keeper, ear: Listener) -> None:
    """What is reported when all is drained is the slot's sum, with nothing under way and the end in the past."""
    launcher.do(f"[launch({MS}) for _ in range(5)]")
    report = ear.drained(gate.set(GATE_SHUT))
    metered, booked = _both_ns(launcher)
    assert report.busy_ns == metered
    assert report.busy_since_ns == 0
    assert report.idle_since_ns > 0
    assert abs(metered - booked) < ONE_POINT * SECOND


def test_the_queue_of_an_open_gate_is_waited_for(launcher: Launcher, gate: Keeper, ear: Listener) -> None:
    """What was launched while nothing was recorded is drained as well, and metered from the shutting on."""
    gate.set(GATE_OPEN)
    sleep(0.05)
    launcher.do(f"[launch({5 * MS}) for _ in range(400)]")  # so many that some are left once the book is read
    booked_from = launcher.unfinished_ns()
    report = ear.drained(gate.set(GATE_SHUT))
    booked = launcher.unfinished_ns()
    sleep(0.02)
    assert launcher.unfinished_ns() == booked >= 400 * 5 * MS
    assert 0 < report.busy_ns <= booked - booked_from + 20 * MS


def test_an_idle_holder_gives_up_early(launcher: Launcher, gate: Keeper, ear: Listener) -> None:
    """While others wait, who has been idle says so, once; after the next burst again."""
    ear.wait_for(lambda report: report.gate_word == gate.word)  # so that the broker knows of it
    launcher.do(f"launch({MS}); sync()")
    assert len(ear.reports) == 1
    word = gate.set(GATE_METERED | GATE_CONTENDED)
    first = ear.drained(word)
    sleep(0.05)
    assert len(ear.reports) == 2
    launcher.do(f"launch({5 * MS}); sync()")
    second = ear.wait_for(lambda report: report.idle_since_ns > first.idle_since_ns)
    assert not second.share_state & SHARE_UNFINISHED
    assert second.busy_ns - first.busy_ns > 4 * MS
    assert len(ear.reports) == 3


def test_nothing_more_is_said_while_nobody_waits(launcher: Launcher, gate: Keeper, ear: Listener) -> None:
    """Metered and uncontended, a program says once that it is there; it sends nothing while it works and rests."""
    launcher.do(f"greedy({MS}, 0.5, False, 0.5)")
    [introduced] = ear.reports
    assert introduced.gate_word == gate.word
    assert not introduced.share_state & SHARE_WANTS


def test_threads_and_streams_share_one_meter(launcher: Launcher, gate: Keeper, ear: Listener) -> None:
    """Several threads, each with a stream of its own, are metered together, held together, and go on together."""
    launcher.do("streams = [make('cuStreamCreate', 1) for _ in range(4)]")

    def work() -> None:
        launcher.do("for stream in streams: aside(greedy, 300000, 1.5, False, 1.0, 0.02, stream)")
        for _ in range(10):
            sleep(0.05)
            ear.drained(gate.set(GATE_SHUT))
            launches = launcher.launches()
            sleep(0.01)
            assert launcher.launches() == launches
            gate.set(GATE_METERED)
        assert min(launcher.get("joined()")) > 10

    _until_agreed(launcher, work, points=2)


def test_two_gpus_at_work_at_once_count_once(launcher: Launcher) -> None:
    """A process's time is the union over its contexts, on whatever GPUs."""
    launcher.do("""
        context(1)
        second, other = make("cuDevicePrimaryCtxRetain", 1), load()

        def pair(rounds):
            for _ in range(rounds):
                must("cuCtxSetCurrent", second)
                assert call("cuLaunchKernel", other, 1, 1, 1, 1, 1, 1, 0, None, parameters(20000000), None) == 0
                must("cuCtxSetCurrent", primary)
                assert launch(10000000) == 0
                sync()
                must("cuCtxSetCurrent", second)
                sync()
    """)
    _until_agreed(launcher, lambda: launcher.do("pair(20)"), least_ns=400 * MS, points=2, gpu=1)
    assert launcher.unfinished_ns(0) >= 200 * MS


@pytest.mark.parametrize(
    "end", ["cuCtxDestroy_v2", "cuDevicePrimaryCtxReset_v2", "cuDevicePrimaryCtxRelease_v2"]
)
def test_a_context_may_end_while_it_is_metered(
    launcher: Launcher, gate: Keeper, ear: Listener, end: str
) -> None:
    """With its work under way a context is destroyed, released or reset; the next one is metered as ever."""
    launcher.do("must('cuDevicePrimaryCtxRelease_v2', 0)")
    for _ in range(20):
        launcher.do(f"""
            if {end!r} == "cuCtxDestroy_v2":
                ending = made = make("cuCtxCreate_v2", 0, 0)
            else:
                made, ending = make("cuDevicePrimaryCtxRetain", 0), 0
                must("cuCtxSetCurrent", made)
            kernel = load()
            assert [launch(300000) for _ in range(5)] == [0] * 5
            must({end!r}, ending)
        """)
        gate.set(GATE_METERED | GATE_CONTENDED)
    launcher.do("context(0); kernel = load()")
    _until_agreed(launcher, lambda: launcher.do(f"greedy({MS}, 0.5)"))
    ear.drained(gate.set(GATE_SHUT))


def test_a_stream_may_end_with_its_work_under_way(launcher: Launcher, gate: Keeper, ear: Listener) -> None:
    """Events of ours in a stream outlive it: what it was given is metered and drained."""

    def work() -> None:
        for _ in range(50):
            launcher.do("""
                stream = make("cuStreamCreate", 1)
                assert [launch(50000, stream) for _ in range(10)] == [0] * 10
                must("cuStreamDestroy_v2", stream)
            """)
        ear.drained(gate.set(GATE_SHUT))
        gate.set(GATE_METERED)

    _until_agreed(launcher, work, least_ns=25 * MS)


def test_a_launch_that_fails_leaves_nothing(launcher: Launcher, gate: Keeper, ear: Listener) -> None:
    """A launch that the driver refuses is neither metered nor waited for."""
    assert (
        launcher.get("call('cuLaunchKernel', kernel, 0, 0, 0, 0, 0, 0, 0, None, parameters(1), None)")
        != SUCCESS
    )
    report = ear.drained(gate.set(GATE_SHUT))
    assert report.busy_ns < MS
