"""Kang et al.'s tasks on one card: the clock shares what tasks share, and one task too many makes several fail."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.kang.card.experiment import run
from bench.kang.card.paper import ALONE_S, COMPLETED_MEDIAN_S, FAILED
from bench.kang.card.schedule import CallSchedule
from bench.kang.card.script import NEED_MIB, USABLE_MIB, Call, Stage, Step, script
from bench.kang.card.ways import plain
from tests.slow import examples


def ends_s(late_s: list[float], usable_mib: int = USABLE_MIB) -> tuple[list[float], list[float]]:
    """The ends of tasks on a card of that size: of those that complete, and of those that fail."""
    schedule = CallSchedule()
    held: dict[int, int] = {}
    ends: dict[Call, list[float]] = {Call.COMPLETE: [], Call.FAIL: []}
    for number, late in enumerate(late_s):
        schedule.start(number, script(late))
    while (due := schedule.next()) is not None:
        number, step = due
        granted = sum(held.values()) + step.size_mib <= usable_mib
        if granted:
            held[number] = held.get(number, 0) + step.size_mib
        if step.call in ends:
            ends[step.call].append(schedule.now_s)
            del held[number]
        schedule.answer(number, granted=granted)
    return ends[Call.COMPLETE], ends[Call.FAIL]


def test_tasks_share_the_gpu_and_slow_each_others_loading() -> None:
    """Computing takes as many times longer as tasks compute, loading a little longer, and an end no longer."""
    schedule = CallSchedule()
    schedule.start(0, [Step(Stage.COMPUTE, 3.0, Call.COMPLETE)])
    schedule.start(1, [Step(Stage.END, 2.0, Call.ALLOCATE, 2), Step(Stage.COMPUTE, 1.0, Call.COMPLETE)])
    times = []
    while (due := schedule.next()) is not None:
        times.append((due[0], due[1].call, schedule.now_s))
        schedule.answer(due[0], granted=True)
    assert times == [(1, Call.ALLOCATE, 2.0), (0, Call.COMPLETE, 4.0), (1, Call.COMPLETE, 4.0)]
    assert 1 < Stage.LOAD.slowness(25) < 1.5


def test_the_script_meets_the_papers_own_figures() -> None:
    """A task that is alone takes its time, 23 fit and 24 do not, and the times with 24 come out near the paper's."""
    alone, failed = ends_s([0.0])
    assert alone == pytest.approx([ALONE_S])
    assert not failed
    assert 23 * NEED_MIB <= USABLE_MIB < 24 * NEED_MIB
    completed, failed = ends_s([0.0] * 24)
    assert len(failed) == FAILED[24]
    assert max(completed) == pytest.approx(COMPLETED_MEDIAN_S[24], rel=0.05)


@settings(max_examples=examples(30), deadline=None)
@given(st.lists(st.floats(-1.0, 1.0), min_size=1, max_size=25))
def test_as_many_tasks_as_fit_complete(late_s: list[float]) -> None:
    """Whenever tasks start, no more fail than a full card makes, and none while 23 or fewer run."""
    completed, failed = ends_s(late_s)
    assert len(completed) + len(failed) == len(late_s)
    if len(late_s) <= 23:
        assert failed == []


async def test_one_task_too_many_makes_several_fail_alike_each_time() -> None:
    """On the emulated card, two runs of 24 processes have the same refusals at the same times, and free all."""
    outcomes = []
    for _ in range(2):
        async with plain() as way:
            outcomes.append(await run(way, 24, 42))
            assert await way.used_mib() == 0
    first, again = outcomes
    assert first == again
    assert len(first.failed_s) > 1
    assert len(first.completed_s) + len(first.failed_s) == 24
