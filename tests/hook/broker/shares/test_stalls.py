"""A broker that is not run for seconds: what was used meanwhile counts, what nobody could use does not."""

from collections.abc import Callable
from typing import Final

import pytest

from hook.broker.core.shares.settings import MS, US, S
from hook.broker.core.shares.turns import GateState
from tests.hook.broker.shares.programs import greedy, looping, part_time
from tests.hook.broker.shares.world import Container, World

STALL_S: Final = 5.0


def until(world: World, holds: Callable[[], bool]) -> None:
    """Let time pass in small steps until something holds."""
    while not holds():
        world.run(0.0002)
        assert world.now_ns < 60 * S


def test_what_was_used_meanwhile_is_made_up_for() -> None:
    """Whoever had the GPU alone for so long gives it to the other for as long, and then both go on as ever."""
    world = World()
    a, b = world.join("a", 50), world.join("b", 50)
    world.start(a, greedy(5 * MS))
    world.start(b, greedy(5 * MS))
    world.run(2.0)
    world.stall_broker(STALL_S)
    assert sum(world.shares(2 * STALL_S, a, b)) == pytest.approx(100, abs=2)
    assert world.shares(STALL_S, a, b) == pytest.approx([50, 50], abs=2)


def test_who_stood_still_with_the_token_pays_for_a_turn() -> None:
    """It could not say that it had no work, but who left it the token was the broker: it has its half at once."""
    world = World()
    a, b = world.join("a", 50), world.join("b", 50)
    process = world.start(a, looping(MS, 100 * US))
    world.start(b, greedy(MS))
    world.run(2.0)
    until(
        world, lambda: a.state is GateState.METERED and process.use.busy_ns > 0 == process.use.busy_since_ns
    )
    process.stop()
    world.stall_broker(STALL_S)
    world.run(STALL_S + 0.01)
    process.resume()
    world.run(0.1)
    assert world.shares(2.0, a, b) == pytest.approx([48, 52], abs=5)


def pausing(world: World) -> Container:
    """One that pauses briefly, so that its token waits for it, beside kernels of 200 ms."""
    other, own = world.join("other", 10), world.join("own", 90)
    world.start(other, greedy(200 * MS))
    world.start(own, part_time(MS, 48 * MS, MS))
    world.run(2.0)
    return own


def test_who_stood_still_in_a_pause_pays_for_no_more_than_it_may_last() -> None:
    """Its token waited for it when the broker stopped and it did too; it goes on as before."""
    world = World()
    own = pausing(world)
    until(world, lambda: lingers(world, own))
    own.processes[0].stop()
    world.stall_broker(STALL_S)
    world.run(STALL_S + 0.01)
    own.processes[0].resume()
    world.run(0.5)
    assert world.shares(3.0, own)[0] >= 80


def test_a_pause_of_which_nobody_heard_is_not_taken_for_a_long_one() -> None:
    """Who pauses briefly is still waited for afterwards, though its latest pause seemed to last for seconds."""
    world = World()
    own = pausing(world)
    until(world, lambda: lingers(world, own))
    world.stall_broker(STALL_S)
    world.run(STALL_S + 0.5)
    assert world.shares(3.0, own)[0] >= 80


def lingers(world: World, container: Container) -> bool:
    """Whether it keeps its token although it pauses."""
    return world.scheduler._clients[container.key].lingers_ns > 0
