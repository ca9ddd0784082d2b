"""Programs that pause get their requests beside greedy ones, as far as they want them."""

import random

import pytest

from tests.hook.broker.core.shares.model import Container, Program, Simulation
from tests.hook.broker.core.shares.programs import greedy, pausing, share, sync


def _late(chance: random.Random) -> float:
    return 40 * (chance.random() < 0.2)


def _brief(chance: random.Random) -> float:
    return chance.uniform(1, 5)


@pytest.mark.parametrize("beside", [1, 20])
@pytest.mark.parametrize(
    ("request_pct", "program", "least"),
    [
        pytest.param(70, pausing(20, 5), 0.97, id="5 ms in each 25"),
        pytest.param(50, sync(20, _late), 0.97, id="a data loader with 20 % late steps"),
        pytest.param(90, sync(5, _brief), 0.9, id="5 ms and a pause of 1 to 5"),
        pytest.param(90, sync(20, _brief), 0.9, id="20 ms and a pause of 1 to 5"),
        pytest.param(90, sync(50, _brief), 0.9, id="50 ms and a pause of 1 to 5"),
    ],
)
def test_one_that_pauses_has_its_request(
    request_pct: int, program: Program, least: float, beside: float
) -> None:
    """The program gets at least this part of its request, or of its use alone if that is less."""
    alone = Container("a", 0.9, 1, [program])
    wanted = min(request_pct, share(Simulation([alone]), alone))
    one = Container("a", request_pct / 100, 1, [program])
    pair = Simulation([one, Container("b", 1 - request_pct / 100, 1, [greedy(beside)])])
    assert share(pair, one) / wanted >= least
