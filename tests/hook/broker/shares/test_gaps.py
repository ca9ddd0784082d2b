"""Programs that pause, beside others that do not."""

from typing import Final

import pytest

from hook.broker.core.shares.settings import MS, US
from tests.hook.broker.shares.programs import greedy, part_time, serving
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
