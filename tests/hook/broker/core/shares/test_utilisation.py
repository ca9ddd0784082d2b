"""A container's use of a GPU by its counters is compared with NVML's figures, and is counted, reported or ignored."""

import pytest

from hook.broker.core.shares.events import GateState, ShareOveruse, Ticked, UnmetSpan, Utilised
from hook.broker.core.shares.settings import MS, S
from tests.hook.broker.core.shares.node import GPUS, Node, key, two


def test_use_is_counted() -> None:
    """Half of a GPU for a second counts as 50 %. Behind an open gate the share falls to 0."""
    node, a, b = two()
    a.work(node.now_ns)
    b.work(node.now_ns)
    node.tick()
    node.tick(200)
    assert node.use("A").busy_s == pytest.approx(0.5)
    assert node.use("A").used_pct == pytest.approx(50, abs=1)
    node.end(a)
    node.tick(500)
    assert node.use("A").used_pct == 0


def test_time_at_a_shut_gate_is_waited() -> None:
    """Time at a shut gate counts as waited. Time behind a metered one, with enough work queued, does not."""
    node = Node()
    node.join("A", 50, 50)
    a = node.start("A", 1)
    a.work(node.now_ns)
    a.stand()
    node.tick()
    assert (node.use("A").waited_s, node.use("A").waits) == (0, 0)
    a.rest(unfinished_ns=5 * MS, sure_ns=2 * MS, sliced_ns=3 * MS)
    ticks = 0
    while node.states["A"] is GateState.SHUT:
        node.tick()
        ticks += 1
    node.tick(100)
    assert node.use("A").waited_s == pytest.approx(ticks * 0.005, abs=0.006)
    assert node.use("A").waits == 1


def test_a_request_that_is_not_met_is_told_every_span() -> None:
    """A container that always wants its request and gets a third is reported every span.

    A container that pauses or idles is not reported.
    """
    node, a, b = two(60, 20)
    extra = node.start("B", 3)
    for played in (a, b, extra):
        played.work(node.now_ns)
    node.tick(4600)
    unmet = [step for step in node.told if isinstance(step, UnmetSpan)]
    assert [(step.container, step.gpu, step.request_pct) for step in unmet] == [(key("A"), GPUS[0], 60)] * 2
    assert unmet[0].used_pct == pytest.approx(33, abs=1)
    assert unmet[0].span_s == pytest.approx(10, abs=1.1)


@pytest.mark.parametrize(("seen_pct", "factor"), [(50, 1.0), (51, 1.0), (67, 1.34), (33, 0.66), (100, 2.0)])
def test_slices_that_are_not_equal_are_corrected(seen_pct: int, factor: float) -> None:
    """Unequal slices are corrected from NVML's figures, as far as these differ by more than their rounding."""
    node, a, b = two()
    node.handle(Utilised(GPUS[0], node.now_ns, {}))
    a.work(node.now_ns)
    b.work(node.now_ns)
    node.tick()
    for _ in range(20):
        node.tick(200)
        node.handle(Utilised(GPUS[0], node.now_ns, {1: seen_pct}))
    meter = node.scheduler._processes[1].places[0][2]
    assert meter.correction.factor == pytest.approx(factor, abs=0.02)


def test_a_process_that_uses_more_than_its_words_say_is_told_of_once() -> None:
    """Use of more than 10 points above the words in two spans in a row is reported once.

    A difference that others' slices explain is not reported.
    """
    node, a, b = two()
    node.handle(Utilised(GPUS[0], node.now_ns, {}))
    b.work(node.now_ns)
    a.stand()
    node.tick()
    for used_pct in (40, 5, 40, 40, 40):
        node.tick(200)
        node.handle(Utilised(GPUS[0], node.now_ns, {1: used_pct, 2: 100}))
    assert node.told == [ShareOveruse(key("A"), 1001, GPUS[0], 40, 0.0)]


def test_of_a_gate_that_stays_open_figures_say_nothing() -> None:
    """Behind an open gate a container's words do not change while it uses all of the GPU.

    It is neither reported nor charged for that.
    """
    node, a, b = two()
    b.work(node.now_ns)
    node.tick()
    b.rest()
    a.work(node.now_ns)
    node.tick(400)
    a.rest()
    assert node.states["A"] is GateState.OPEN
    for _ in range(4):
        node.now_ns += S
        node.handle(Ticked(node.now_ns, {}))
        node.handle(Utilised(GPUS[0], node.now_ns, {1: 100}))
    meter = node.scheduler._processes[1].places[0][2]
    assert (node.told, meter.correction.factor) == ([], 1.0)


def test_figures_of_a_span_that_was_hardly_metered_say_nothing() -> None:
    """In a span that was hardly metered, use behind the open gate is not in the words, and is not reported."""
    node, a, b = two()
    node.tick()
    for _ in range(3):
        a.work(node.now_ns)
        node.tick(100)
        b.work(node.now_ns)
        node.tick(100)
        node.handle(Utilised(GPUS[0], node.now_ns, {1: 100}))
        b.rest()
        node.tick(210)
    assert node.told == []
