"""The charged time is the time in which the GPU executed the work, by the emulator's book."""

from collections.abc import Callable
from time import monotonic, sleep

import pytest

from plimsoll.broker.pages import GATE_METERED, GATE_OPEN, GATE_SHUT
from tests.hook.lib.conftest import CONTEXT_MIB
from tests.hook.lib.container import Line
from tests.hook.lib.gate import GateWriter, until
from tests.hook.lib.launcher import Launcher
from tests.hook.lib.program import MIB, SUCCESS, Node
from tests.servers.waiting import PATIENCE_S
from tests.slow import quick_and_slow

US, MS = 1_000, 1_000_000
SECOND = 1_000_000_000
ONE_POINT = 0.01
ROUNDS = 6
DRAWS = 3


@pytest.fixture(name="lines")
def _lines(node: Node) -> list[Line]:
    """Room for more than twenty contexts."""
    return [Line(uuid, 1920 * MIB, CONTEXT_MIB * MIB) for uuid in node.uuids]


def _both_ns(launcher: Launcher, gpus: range) -> tuple[int, int]:
    """The recorded time and the book's time, once all work is done and recorded."""
    until(lambda: not any(launcher.work(gpu).launched_ns for gpu in gpus))
    return sum(map(launcher.told_ns, gpus)), sum(map(launcher.executed_ns, gpus))


def _until_agreed(
    launcher: Launcher,
    work: Callable[[], object],
    *,
    least_ns: int = 0,
    points: float = 1,
    gpus: range = range(1),
) -> None:
    """Work for this long, and then until the recorded time once equals the book's time within `points` of a second.

    A thread that loses the processor between an event of the library and its launch is metered meanwhile: where other
    things want the machine, some attempts fail.
    """
    seen: list[tuple[int, int]] = []
    end = monotonic() + PATIENCE_S
    while (
        not seen
        or sum(booked for _, booked in seen) < least_ns
        or abs(seen[-1][0] - seen[-1][1]) >= points * ONE_POINT * SECOND
    ):
        assert monotonic() < end, f"told and booked, each time: {seen}"
        told_from, booked_from = _both_ns(launcher, gpus)
        work()
        told, booked = _both_ns(launcher, gpus)
        seen.append((told - told_from, booked - booked_from))


# The emulator executes kernels of 20 us in time only while its thread gets a CPU at once: not beside busy loops.
@pytest.mark.parametrize("kernel_ns", quick_and_slow([MS, 20 * MS], [20 * US]))
@pytest.mark.parametrize("way", ["queued", "one by one"])
@pytest.mark.parametrize("duty", [1.0, 0.5])
def test_what_is_told_is_what_the_book_says(
    launcher: Launcher, kernel_ns: int, way: str, duty: float
) -> None:
    """Page and book agree within some points for long and short kernels, queued or single, with pauses or without."""
    launcher.do("launch(1000); sync()")
    work = f"greedy({kernel_ns}, 1.0, {way == 'one by one'}, {duty})"
    points = (
        1 if kernel_ns >= MS else 3 if way == "queued" else 8
    )  # of each launch, a microsecond is not known
    _until_agreed(launcher, lambda: launcher.do(work), least_ns=SECOND // 5, points=points)


def test_work_that_nobody_waits_for_is_metered(launcher: Launcher) -> None:
    """A program that launches and never synchronises is metered by the library's own thread."""

    def work() -> None:
        for _ in range(20):
            launcher.do(f"launch({5 * MS})")
            sleep(0.02)

    _until_agreed(launcher, work, least_ns=100 * MS)


def test_a_long_launch_behind_short_ones_is_metered(launcher: Launcher) -> None:
    """A long launch behind dense short ones in other streams is metered by its own length."""
    launcher.do("streams = [make('cuStreamCreate', 1) for _ in range(3)]")
    work = f"""
        for _ in range(100):
            for number in range(9):
                launch({20 * US}, streams[number % 3])
            launch({3 * MS}, streams[0])
            time.sleep(0.008)
    """
    _until_agreed(launcher, lambda: launcher.do(work), least_ns=300 * MS, points=3)


def test_what_was_queued_behind_an_open_gate_is_metered_from_its_shutting_on(
    launcher: Launcher, gate: GateWriter
) -> None:
    """Work launched behind an open gate executes on behind the shut one, and is metered until it ends."""
    gate.set(GATE_OPEN)
    launcher.do(f"aside(greedy, {5 * MS}, 30)")
    until(lambda: launcher.executed_ns() > SECOND // 2)
    gate.set(GATE_SHUT)
    from_ns = launcher.executed_ns()
    until(lambda: launcher.work().launched_ns > 0)
    until(lambda: launcher.work().launched_ns == 0)
    executed_ns = launcher.executed_ns()
    assert 0 < launcher.told_ns() < executed_ns - from_ns + 100 * MS
    sleep(0.05)
    assert launcher.executed_ns() == executed_ns
    launcher.do("over.set()")
    gate.set(GATE_OPEN)
    launcher.do("joined()")


def test_an_opening_ends_what_is_told(launcher: Launcher, gate: GateWriter) -> None:
    """From its opening on a gate meters nothing, though work goes on; shut again, it meters."""
    launcher.do(f"aside(greedy, {MS}, 60)")
    for _ in range(3):
        until(lambda: launcher.work().launched_ns > 0)
        gate.set(GATE_OPEN)
        until(lambda: launcher.work().launched_ns == 0)
        settled = launcher.work().settled
        sleep(0.1)
        assert launcher.work().settled == settled
        gate.set(GATE_METERED)
    launcher.do("over.set(); joined()")


def test_threads_and_streams_share_one_meter(launcher: Launcher, gate: GateWriter) -> None:
    """Several threads with a stream each are metered together, wait together, and go on together."""
    launcher.do("streams = [make('cuStreamCreate', 1) for _ in range(4)]")

    def work() -> None:
        launcher.do("over.clear(); threads.clear(); results.clear()")
        launcher.do("for stream in streams: aside(greedy, 300000, 60, False, 1.0, 0.02, stream)")
        for _ in range(5):
            sleep(0.1)
            gate.set(GATE_SHUT)
            until(lambda: launcher.stands_idle(4))
            launches = launcher.launches()
            sleep(0.02)
            assert launcher.launches() == launches
            gate.set(GATE_METERED)
        launcher.do("over.set()")
        assert min(launcher.get("joined()")) > 10

    _until_agreed(launcher, work, points=2)


@pytest.mark.usefixtures("gate")
@pytest.mark.parametrize(
    ("count", "lengths"),
    [(16, [20 * US]), (300, [20 * US, MS]), (2000, [20 * US]), (2000, [20 * US, 200 * US])],
)
def test_no_work_escapes_in_any_number_of_streams(launcher: Launcher, count: int, lengths: list[int]) -> None:
    """Drawn kernels in drawn streams are all charged, also in more streams than the library has events."""
    launcher.do(f"streams = [make('cuStreamCreate', 1) for _ in range({count})]")
    told_from, booked_from = _both_ns(launcher, range(1))
    for seed in range(DRAWS):
        launcher.do(f"fan_out({seed}, streams, {lengths}, 1.0)")
    told, booked = _both_ns(launcher, range(1))
    assert booked - booked_from <= (told - told_from) * (1 + ONE_POINT)


def test_a_context_that_is_retained_and_released_beside_its_launches_is_metered(
    launcher: Launcher, gate: GateWriter
) -> None:
    """A library that retains the primary context for a moment, again and again, changes no charge."""

    def work() -> None:
        rounds.append(launcher.launches())
        assert len(rounds) <= ROUNDS, "one stall of the machine spoils one round, and all were spoilt"
        launcher.do(f"over.clear(); aside(greedy, {MS}, 120); aside(hold_and_release)")
        for _ in range(20):
            gate.set(GATE_SHUT)
            sleep(0.01)
            gate.set(GATE_METERED)
            sleep(0.01)
        launcher.do("over.set(); joined()")

    rounds: list[int] = []
    _until_agreed(launcher, work, points=2)


@pytest.mark.parametrize("gpu", [0, 1])
def test_each_gpu_has_its_own_time(launcher: Launcher, gpu: int) -> None:
    """Two GPUs at work at once are metered separately."""
    launcher.use("steps")
    launcher.do("pair = Pair()")
    _until_agreed(
        launcher,
        lambda: launcher.do("pair.work(20)"),
        least_ns=(1 + gpu) * 200 * MS,
        points=2,
        gpus=range(gpu, gpu + 1),
    )


@pytest.mark.parametrize("way", ["by turns", "at once"])
def test_twenty_contexts_are_metered_like_the_first(launcher: Launcher, way: str) -> None:
    """The time of each context is metered, however many a process has on a GPU."""
    launcher.use("steps")
    launcher.do("crowd = Crowd(20)")
    work = f"for _ in range(5): crowd.work({2 * MS}, by_turns={way == 'by turns'})"
    _until_agreed(launcher, lambda: launcher.do(work), least_ns=200 * MS)


@pytest.mark.parametrize(
    "end", ["cuCtxDestroy_v2", "cuDevicePrimaryCtxReset_v2", "cuDevicePrimaryCtxRelease_v2"]
)
def test_a_context_may_end_while_it_is_metered(launcher: Launcher, gate: GateWriter, end: str) -> None:
    """A context may be destroyed, released or reset with work under way, and the next one is metered as usual."""
    launcher.do("[must('cuDevicePrimaryCtxRelease_v2', 0) for _ in range(2)]")
    for _ in range(20):
        launcher.do(f"""
            if {end!r} == "cuCtxDestroy_v2":
                ending = made = make("cuCtxCreate_v2", 0, 0)
            else:
                made, ending = make("cuDevicePrimaryCtxRetain", 0), 0
                must("cuCtxSetCurrent", made)
            reload()
            assert [launch(300000) for _ in range(5)] == [0] * 5
            must({end!r}, ending)
        """)
        until(lambda: launcher.work().launched_ns == 0)
        gate.set(GATE_METERED)
    launcher.do("context(0); reload()")
    _until_agreed(launcher, lambda: launcher.do(f"greedy({MS}, 0.5)"))


def test_a_stream_may_end_with_its_work_under_way(launcher: Launcher) -> None:
    """A destroyed stream's work is metered to its end, as the library's events outlive the stream."""

    def work() -> None:
        for _ in range(50):
            launcher.do("""
                stream = make("cuStreamCreate", 1)
                assert [launch(50000, stream) for _ in range(10)] == [0] * 10
                must("cuStreamDestroy_v2", stream)
            """)

    _until_agreed(launcher, work, least_ns=25 * MS)


def test_a_launch_that_fails_leaves_nothing(launcher: Launcher) -> None:
    """A launch that the driver refuses is neither metered nor waited for."""
    failing = "call('cuLaunchKernel', kernel, 0, 0, 0, 0, 0, 0, 0, None, parameters(1), None)"
    assert launcher.get(failing) != SUCCESS
    until(lambda: launcher.work().launched_ns == 0)
    assert launcher.told_ns() < MS
