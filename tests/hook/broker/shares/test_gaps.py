"""Programs that pause, beside others that do not."""

import itertools
from typing import Final

import pytest

from hook.broker.core.shares.settings import MS, US
from tests.hook.broker.shares.programs import Launch, Program, greedy, part_time, serving
from tests.hook.broker.shares.world import World

SECONDS: Final = 10.0


@pytest.mark.parametrize("kernel_ms", [20, 200])
def test_a_short_pause_costs_no_long_kernel(kernel_ms: int) -> None:
    """With request 90 and a pause of 1 ms in every 49, it gets nearly all it can use, and the other its 10."""
    world = World()
    other, pausing = world.join("other", 10), world.join("pausing", 90)
    world.start(other, greedy(kernel_ms * MS))
    world.start(pausing, part_time(MS, 48 * MS, MS))
    shares = world.shares(SECONDS, other, pausing)
    assert shares == pytest.approx([10, 88], abs=2)


def test_who_pauses_pays_for_the_pauses_in_which_others_wait() -> None:
    """One that pauses as long as it works keeps its token for 90 % of the time at most: the other has its 10."""
    world = World()
    other, pausing = world.join("other", 10), world.join("pausing", 90)
    world.start(other, greedy(200 * MS))
    world.start(pausing, part_time(MS, MS, MS))
    others, own = world.shares(SECONDS, other, pausing)
    assert others >= 10 - 2
    assert own >= 40


def test_nobody_is_waited_for_who_is_known_to_come_back_late() -> None:
    """Beside one that serves a request of 2 ms every 20 ms, a trainer gets all but that and the hand-overs."""
    world = World()
    server, trainer = world.join("server", 20), world.join("trainer", 80)
    latencies_ns: list[int] = []
    world.start(server, serving(2 * MS, 20 * MS, lambda: world.now_ns, latencies_ns))
    world.start(trainer, greedy(20 * MS))
    _, trains = world.shares(SECONDS, server, trainer)
    assert trains >= 85


@pytest.mark.parametrize(
    ("kernel_ms", "requests", "on_off_ms", "least"),
    [
        (20, (10, 90), (45, 5), (8, 80)),
        (20, (30, 70), (20, 5), (28, 58)),
        (50, (50, 50), (45, 5), (48, 47)),
        (50, (50, 50), (100, 8), (48, 47)),
    ],
)
def test_others_have_their_part_in_pauses(
    kernel_ms: int, requests: tuple[int, int], on_off_ms: tuple[int, int], least: tuple[int, int]
) -> None:
    """Who waits is let in when the holder pauses, as long as it has not had much more than its due: both get what
    they request, less what the pauses themselves take.
    """
    world = World()
    other, pausing = world.join("other", requests[0]), world.join("pausing", requests[1])
    world.start(other, greedy(kernel_ms * MS))
    world.start(pausing, part_time(MS, on_off_ms[0] * MS, on_off_ms[1] * MS))
    world.run(1.0)
    shares = world.shares(SECONDS, other, pausing)
    assert shares[0] >= least[0]
    assert shares[1] >= least[1]


def test_nobody_is_waited_for_who_hardly_works() -> None:
    """With request 90, 20 us of work and pauses of 2 ms it keeps nobody from the GPU who can use it."""
    world = World()
    other, idler = world.join("other", 10), world.join("idler", 90)
    world.start(other, greedy(20 * MS))
    world.start(idler, part_time(20 * US, 20 * US, 2 * MS))
    assert world.shares(SECONDS, other)[0] >= 90


@pytest.mark.parametrize(("work_us", "pause_us"), [(100, 600), (100, 2000), (300, 2000), (500, 1000)])
def test_a_turn_that_a_pause_ends_counts_as_used(work_us: int, pause_us: int) -> None:
    """One that works for less than it takes to see that it has stopped takes no more than its request by it."""
    world = World()
    other, brief = world.join("other", 90), world.join("brief", 10)
    world.start(other, greedy(1 * MS))
    world.start(brief, part_time(work_us * US, work_us * US, pause_us * US))
    world.run(1.0)
    others, own = world.shares(SECONDS, other, brief)
    assert others >= 87
    assert own > 0


def test_a_word_that_comes_late_is_held_against_nobody() -> None:
    """One that serves 2 ms of work every 20 ms, with request 20, is let in at once, although the broker hears 3 ms
    later than it should, on a busy machine, that it has done its work.
    """
    world = World()
    server, trainer = world.join("server", 20), world.join("trainer", 80)
    latencies_ns: list[int] = []
    serves = serving(2 * MS, 20 * MS, lambda: world.now_ns, latencies_ns)
    world.start(server, serves).late_ns = 3 * MS
    world.start(trainer, greedy(1 * MS))
    world.run(SECONDS)
    latencies_ns.sort()
    assert latencies_ns[len(latencies_ns) * 99 // 100] <= 8 * MS


def mostly_pausing(until_ns: int, world: World) -> Program:
    """A millisecond in every six; in the end, all the time."""
    while world.now_ns < until_ns:
        yield from itertools.islice(part_time(MS, MS, 5 * MS), 3)
    yield from greedy(MS)


@pytest.mark.parametrize("kernel_ms", [1, 20])
@pytest.mark.parametrize("request_pct", [50, 90])
def test_who_mostly_pauses_saves_up_nothing_that_stops_others(kernel_ms: int, request_pct: int) -> None:
    """It was kept waiting each time, and used little; when its pauses end, the other still has its request within
    seconds.
    """
    world = World()
    other, pausing = world.join("other", 100 - request_pct), world.join("pausing", request_pct)
    world.start(other, greedy(kernel_ms * MS))
    world.start(pausing, mostly_pausing(world.now_ns + 20_000 * MS, world))
    world.run(20.0)
    assert world.shares(3.0, other)[0] >= 0.5 * (100 - request_pct)
    assert world.shares(SECONDS, other, pausing) == pytest.approx([100 - request_pct, request_pct], abs=2)


def now_and_then_long() -> Program:
    """Forty kernels of a millisecond, one of three hundred."""
    while True:
        yield from (Launch(MS) for _ in range(40))
        yield Launch(300 * MS)


@pytest.mark.parametrize("on_off_ms", [(45, 5), (10, 10)])
def test_who_seldom_pauses_is_paid_back_what_others_overran(on_off_ms: tuple[int, int]) -> None:
    """Beside one with request 10 whose kernels are sometimes of 300 ms it waits long, and it is not forgotten for
    its pauses: in the end the other has no more than its request.
    """
    world = World()
    other, pausing = world.join("other", 10), world.join("pausing", 90)
    world.start(other, now_and_then_long())
    world.start(pausing, part_time(MS, on_off_ms[0] * MS, on_off_ms[1] * MS))
    world.run(1.0)
    assert world.shares(20.0, other)[0] == pytest.approx(10, abs=2)
