"""The scores of the sorted list."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placer.core.booking import Booking, Grant
from placer.core.ledger import Ledger
from placer.core.room import Room, room_on
from placer.core.score import TIE_BREAK, Formula, gpu_score, node_scores
from placer.core.view import node_view
from plimsoll.events import Gpu
from plimsoll.ids import ContainerName, GpuUuid, NodeName, PodUid
from plimsoll.quantity import GIB
from tests.placer.core.worlds import gpu, state, task

ratios = st.floats(0, 1)
percents = st.floats(0, 100)


def rooms(*gpus: Gpu, ledger: Ledger | None = None) -> list[Room]:
    """The rooms of a node's GPUs."""
    seen = node_view(state("n", *gpus))
    return [room_on(seen.node, one, ledger or Ledger()) for one in seen.gpus]


def test_the_prose_prefers_the_idle_one_of_two_equally_free_gpus() -> None:
    """By default an idle GPU scores above a busy one with the same memory."""
    assert gpu_score(0.5, 90) > gpu_score(0.5, 10)


def test_the_literal_formula_prefers_the_busy_one() -> None:
    """Algorithm 1 as printed, (1 − used/total)(1 − idle/100), scores the busy GPU higher."""
    assert gpu_score(0.5, 90, Formula.LITERAL) == pytest.approx(0.05, abs=TIE_BREAK)
    assert gpu_score(0.5, 10, Formula.LITERAL) == pytest.approx(0.45, abs=TIE_BREAK)


def test_busy_gpus_are_ordered_by_free_memory() -> None:
    """Among GPUs without idle time the score still falls with used memory, though the product is 0."""
    assert gpu_score(0.9, 0) > gpu_score(0.1, 0)


def test_a_nodes_score_is_its_best_gpus() -> None:
    """A node's score is that of its best GPU, however full the others are."""
    full, free = gpu("full", task("a", "full", 24 << 30)), gpu("free")
    scores = node_scores(rooms(full, free))
    assert scores.node == scores.gpus[free.uuid] > scores.gpus[full.uuid]


def test_promised_memory_counts_as_used() -> None:
    """A GPU that is half promised scores as one that is half used, before anything is measured."""
    ledger = Ledger()
    grant = Grant(ContainerName("main"), GpuUuid("g"), 12 * GIB, 0, 100, whole=False, line_bytes=12 * GIB)
    ledger.book(Booking(PodUid("p"), NodeName("n"), (grant,)))
    used = node_scores(rooms(gpu("g", other_bytes=12 * GIB))).node
    assert node_scores(rooms(gpu("g"), ledger=ledger)).node == used == pytest.approx(0.5, abs=TIE_BREAK)


def test_a_node_without_gpus_scores_nothing() -> None:
    """The score of a node without GPUs is 0 and not an error."""
    assert node_scores(rooms()).node == 0


@given(ratios, ratios, percents, st.sampled_from(Formula))
def test_more_free_memory_never_scores_lower(a: float, b: float, idle_pct: float, formula: Formula) -> None:
    """At equal idle time the score rises with free memory."""
    low, high = sorted((a, b))
    assert gpu_score(low, idle_pct, formula) <= gpu_score(high, idle_pct, formula)


@given(st.floats(-2, 3), st.floats(-50, 150), st.sampled_from(Formula))
def test_scores_stay_in_range(free_ratio: float, idle_pct: float, formula: Formula) -> None:
    """A score is 0 to 1 plus the tie-break, also for a report taken in the middle of an allocation."""
    assert 0 <= gpu_score(free_ratio, idle_pct, formula) <= 1 + TIE_BREAK
