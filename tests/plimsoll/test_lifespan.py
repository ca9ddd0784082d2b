"""The most that a pod's containers have together, against a restatement that plays the pod's life."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.ids import ContainerName
from plimsoll.lifespan import MAIN, Lifespan, StartOrder, beside, longer, peak, start_order

Amounts = list[tuple[Lifespan, int]]


def init(place: int) -> Lifespan:
    """An ordinary init container."""
    return Lifespan(place)


def sidecar(place: int) -> Lifespan:
    """A sidecar."""
    return Lifespan(place, sidecar=True)


def lives(amounts: Amounts) -> list[list[int]]:
    """The indexes of the containers that run at each moment of a pod's life, played step by step."""
    running: list[int] = []
    moments: list[list[int]] = []
    starting = sorted(
        (index for index, (lifespan, _) in enumerate(amounts) if lifespan.init is not None),
        key=lambda index: amounts[index][0].init or 0,
    )
    for index in starting:
        moments.append([*running, index])
        if amounts[index][0].sidecar:
            running.append(index)
    return [*moments, [*running, *(i for i, (lifespan, _) in enumerate(amounts) if lifespan == MAIN)]]


@st.composite
def pods(draw: st.DrawFn) -> Amounts:
    """The containers of a pod, in any order; each init container has a place of its own."""
    kinds = draw(st.lists(st.sampled_from(["main", "init", "sidecar"]), max_size=7))
    places = iter(range(len(kinds)))
    spans = [MAIN if kind == "main" else Lifespan(next(places), kind == "sidecar") for kind in kinds]
    amounts = [(span, draw(st.integers(0, 50))) for span in spans]
    return draw(st.permutations(amounts))


@pytest.mark.parametrize(
    ("amounts", "expected"),
    [
        ([], 0),
        ([(MAIN, 3)], 3),
        ([(MAIN, 3), (MAIN, 4)], 7),
        ([(init(0), 5), (MAIN, 3)], 5),
        ([(init(0), 5), (MAIN, 8)], 8),
        ([(init(0), 5), (init(1), 6), (MAIN, 3)], 6),
        ([(sidecar(0), 2), (MAIN, 3)], 5),
        ([(sidecar(0), 2), (init(1), 5), (MAIN, 3)], 7),
        ([(init(0), 5), (sidecar(1), 2), (MAIN, 2)], 5),
        ([(sidecar(0), 2), (sidecar(1), 3), (MAIN, 1)], 6),
        ([(init(0), 5)], 5),
    ],
)
def test_a_pod_has_the_most_of_all_moments(amounts: Amounts, expected: int) -> None:
    """The larger counts of init containers and containers, and a sidecar beside all that begins after it."""
    assert peak(amounts) == expected


@given(pods())
def test_the_peak_is_that_of_the_life_played_step_by_step(amounts: Amounts) -> None:
    """No moment of the pod's life has more, and one has as much."""
    assert peak(amounts) == max(sum(amounts[index][1] for index in moment) for moment in lives(amounts))


@given(pods())
def test_beside_a_container_counts_what_runs_while_it_runs(amounts: Amounts) -> None:
    """The sum beside a container is that of the moments at which it runs, without itself."""
    for index, (lifespan, _) in enumerate(amounts):
        others = [one for place, one in enumerate(amounts) if place != index]
        moments = [moment for moment in lives(amounts) if index in moment]
        expected = max(sum(amounts[i][1] for i in moment if i != index) for moment in moments)
        assert beside(lifespan, others) == expected


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (MAIN, init(3), MAIN),
        (init(1), init(3), init(3)),
        (init(3), init(1), init(3)),
        (sidecar(1), sidecar(3), sidecar(1)),
        (sidecar(3), init(1), sidecar(3)),
        (MAIN, sidecar(3), sidecar(3)),
    ],
)
def test_the_longer_lifespan_has_more_beside_it(one: Lifespan, other: Lifespan, expected: Lifespan) -> None:
    """A sidecar that begins early counts most, then a container, then an init container that runs late."""
    assert longer(one, other) == longer(other, one) == expected


@given(pods(), st.randoms(use_true_random=False))
def test_the_longer_of_two_lifespans_never_counts_less(amounts: Amounts, draws: random.Random) -> None:
    """A pod whose containers are said to live in two ways counts at least as much as in either."""
    spans = [lifespan for lifespan, _ in amounts]
    draws.shuffle(spans)
    other = [(lifespan, amount) for lifespan, (_, amount) in zip(spans, amounts, strict=True)]
    both = [(longer(one, two), amount) for (one, amount), (two, _) in zip(amounts, other, strict=True)]
    assert peak(both) >= max(peak(amounts), peak(other))


@given(pods())
def test_a_start_order_gives_the_lifespans_back(amounts: Amounts) -> None:
    """The order in a decision gives each container the lifespan that it was made of."""
    spans = {ContainerName(f"c{index}"): lifespan for index, (lifespan, _) in enumerate(amounts)}
    inits = sorted(span.init for span in spans.values() if span.init is not None)
    assert inits == list(range(len(inits)))
    order = start_order(spans)
    assert {name: order.lifespan(name) for name in spans} == spans


def test_a_pod_without_init_containers_has_an_empty_order() -> None:
    """Ordinary containers stand in no order."""
    assert start_order({ContainerName("main"): MAIN}) == StartOrder()
