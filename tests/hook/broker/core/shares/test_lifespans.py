"""Init containers in the share scheduler: one that has ended claims nothing, and a container yet to begin neither.

A pod's init container and its container may be promised more than the GPU's time together. Figures are in percent of
the GPU's time.
"""

import math
from collections.abc import Iterator

import pytest

from hook.broker.core.shares.events import UnmetSpan
from tests.hook.broker.core.shares.model import Actor, Container, Simulation, Sleep, Step
from tests.hook.broker.core.shares.programs import greedy

END = 3000.0
"""The time at which the init container ends and the container begins."""


@pytest.mark.parametrize("own", [1.0, 20.0])
def test_an_init_container_and_its_successor_have_the_same_promise(own: float) -> None:
    """With a neighbour of 40, an init container and then a container of 60 each get 60 while they run."""
    init = Container("init", 0.6, 1, [greedy(own, stop=END)])
    main = Container("main", 0.6, 1, [greedy(own)], start=END)
    other = Container("other", 0.4, 1, [greedy(1)])
    simulation = Simulation([init, main, other])
    assert not [step for step in simulation.instructions if isinstance(step, UnmetSpan)]
    assert sum(init.seconds[:3]) / 30 == pytest.approx(60, abs=3)
    assert sum(main.seconds[3:10]) / 70 == pytest.approx(60, abs=2)
    assert sum(init.seconds[4:]) == 0


def test_an_ended_init_container_gives_its_time_to_all() -> None:
    """After the init container of 90 has ended, two containers of 5 have half of the GPU each."""
    init = Container("init", 0.9, 1, [greedy(1, stop=END)])
    one, other = (Container(name, 0.05, 1, [greedy(1)]) for name in ("one", "other"))
    simulation = Simulation([init, one, other])
    assert not [step for step in simulation.instructions if isinstance(step, UnmetSpan)]
    assert [sum(each.seconds[4:10]) / 60 for each in (one, other)] == pytest.approx([50, 50], abs=2)


def test_an_ended_init_container_leaves_the_broker_at_rest() -> None:
    """Once an init container has ended in debt, and nothing else has work, no tick has anything to do."""
    init = Container("init", 0.3, 1, [greedy(20, stop=END)])
    others = [Container(name, 0.3, 1, [greedy(1, stop=END), waiting]) for name in ("one", "other")]
    simulation = Simulation([init, *others])
    assert simulation.scheduler.needs_ticks
    assert simulation.scheduler.is_at_rest


def waiting(_: Actor) -> Iterator[Step]:
    """Do nothing."""
    yield Sleep(math.inf)


def test_a_container_alone_after_its_init_container_is_not_held() -> None:
    """A container that is alone on its GPU, once its greedy init container has ended, runs as if nobody had been."""
    init = Container("init", 0.3, 1, [greedy(1, stop=END)])
    main = Container("main", 0.3, 1, [greedy(1)], start=END)
    Simulation([init, main])
    assert sum(main.seconds[5:10]) / 50 == pytest.approx(100, abs=1)
