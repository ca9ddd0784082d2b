"""What a kernel costs that is longer than any turn: it is charged in full, and only to whose it is."""

import pytest

from hook.broker.core.shares.settings import MS, ShareSettings
from tests.hook.broker.shares.programs import greedy, late_giant
from tests.hook.broker.shares.tenants import SPAN_S, tenants
from tests.hook.broker.shares.world import World


def test_one_giant_kernel_is_paid_for() -> None:
    """A kernel of 5 s that no grace waits for is charged in full: in the end both had the same, less one claim."""
    world = World()
    a, b = world.join("a", 50), world.join("b", 50)
    world.start(a, late_giant(1000 * MS, 5000 * MS, 1 * MS))
    world.start(b, greedy(1 * MS))
    world.run(1.0)
    idled_ns = world.used_ns(b)
    world.run(15.0)
    apart_ns = world.used_ns(a) - (world.used_ns(b) - idled_ns)
    assert abs(apart_ns - world.settings.window_ms * MS) <= 100 * MS
    charged = world.scheduler.uses(a.key, world.now_ns)
    assert charged is not None
    assert charged.busy_s == pytest.approx(world.used_ns(a) / 1e9, abs=0.1)
    assert charged.overrun_s > 4


@pytest.mark.parametrize("request_pct", [70, 90])
def test_who_ran_beside_a_giant_kernel_is_not_made_to_pay_for_it(request_pct: int) -> None:
    """Nobody waited for the giant of one that was promised most of the GPU, and the other used what it was given:
    afterwards both have their requests within seconds.
    """
    world = World()
    a, b = world.join("a", request_pct), world.join("b", 100 - request_pct)
    world.start(a, late_giant(1000 * MS, 20_000 * MS, 1 * MS))
    world.start(b, greedy(1 * MS))
    world.run(23.0)
    assert world.shares(SPAN_S, a, b) == pytest.approx([request_pct, 100 - request_pct], abs=5)


def test_a_kernel_shorter_than_the_grace_is_paid_back() -> None:
    """What one long kernel takes is owed, and both get their requests over time."""
    world = World()
    a, b = tenants(world, (50, 50), (800 * MS, 1 * MS))
    world.run(2.0)
    assert world.shares(16.0, a, b) == pytest.approx([50, 50], abs=5)


def test_a_request_that_could_not_be_met_is_told_of() -> None:
    """Beside giant kernels, a container that gets too little in a span is named; whoever pays for its own is not."""
    world = World(ShareSettings(unmet_s=1.0, grace_ms=3000.0))
    _, b = tenants(world, (20, 80), (2500 * MS, 1 * MS))
    world.run(8.0)
    assert world.unmet
    assert {told.container for told in world.unmet} == {b.key}
    assert all(told.used_pct < 80 for told in world.unmet)
    assert len(world.unmet) <= 8
