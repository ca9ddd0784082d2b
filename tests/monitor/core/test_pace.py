"""When the GPUs are sampled next."""

import random

import pytest

from bench.measures.percentile import percentile
from monitor.core import tasks as table
from monitor.core.lifecycle import NO_OWNER, LoadingRules, Owner, TaskKey
from monitor.core.pace import AT_ONCE_S, LEAST_S, WRITING_S, Pace, RoundThrottle
from monitor.core.tasks import ListedProcess, Listing, Tasks
from plimsoll.ids import ContainerName, GpuUuid, PodUid, ProcessKey

RULES = LoadingRules(settle_s=1.0, tolerance_bytes=8, reload_bytes=64)
GPU = GpuUuid("GPU-a")
HOOKED = Owner(PodUid("pod"), ContainerName("main"))


def listed(tasks: Tasks, now_s: float, *held: tuple[int, int], owner: Owner = NO_OWNER) -> Tasks:
    """The table after a sample of (pid, bytes)."""
    seen = tuple(ListedProcess(TaskKey(ProcessKey(pid, 1), GPU), used, owner) for pid, used in held)
    return table.take_listing(tasks, Listing(frozenset({GPU}), seen), now_s, RULES)[0]


def pause_s(pace: Pace, tasks: Tasks, now_s: float) -> float:
    """The pause after a sample that took no time."""
    pace.begins(now_s)
    return pace.next_s(tasks, now_s) - now_s


def test_a_loading_task_is_sampled_often_and_one_that_never_rests_rarely() -> None:
    """Samples are frequent while a task has not settled, and become rare for a task that never settles."""
    pace = Pace(0.1, 5, RULES)
    assert pause_s(pace, Tasks(), 0) == 5
    tasks = listed(Tasks(), 0, (1, 1), owner=HOOKED)
    pace.sampled(tasks, 0)
    assert pause_s(pace, tasks, 0.5) == pytest.approx(0.1)
    pace.sampled(tasks, 1.0)
    assert pause_s(pace, tasks, 100) == pytest.approx(1)
    assert pause_s(pace, tasks, 3600) == 5
    assert pause_s(pace, listed(tasks, 2, (1, 1), owner=HOOKED), 2) == 5


def test_fast_samples_are_a_fast_pause_apart_however_long_they_take() -> None:
    """A sample and the storing of its events delay the next sample only where they take longer than the pause."""
    pace = Pace(0.1, 5, RULES)
    tasks = listed(Tasks(), 0, (1, 1), owner=HOOKED)
    for took_s, after_s in ((0.03, 0.1), (0.09, 0.11), (0.5, 0.52)):
        pace.begins(0)
        pace.sampled(tasks, took_s)
        assert pace.next_s(tasks, took_s) == pytest.approx(after_s)


def test_an_unhooked_task_that_changed_is_sampled_sooner() -> None:
    """After a change of an unhooked task the pauses are a tenth of the time since; a small change is none."""
    pace = Pace(0.1, 5, RULES)
    loaded = listed(listed(Tasks(), 0, (1, 100)), 2, (1, 100))
    pace.sampled(loaded, 2)
    assert pause_s(pace, loaded, 2.5) == pytest.approx(0.1)
    assert pause_s(pace, loaded, 22) == pytest.approx(2)
    pace.sampled(listed(loaded, 22, (1, 108)), 22)
    assert pause_s(pace, loaded, 22) == pytest.approx(2)
    pace.sampled(shrunk := listed(loaded, 22, (1, 50)), 22)
    assert pause_s(pace, shrunk, 23) == pytest.approx(0.1)
    pace.sampled(Tasks(), 30)
    assert pause_s(pace, Tasks(), 32) == pytest.approx(0.2)


def test_events_in_a_row_share_a_sample() -> None:
    """An event alone may be sampled at once; after a sample the next one waits for the shortest pause, or less."""
    pace = Pace(0.1, 5, RULES)
    assert pace.wait_s(3) <= 0
    pace.begins(3)
    assert 0 < pace.wait_s(3.05) < 0.1
    assert pace.wait_s(3.2) <= 0
    assert pace.wait_s(3.01, at_once=True) == pytest.approx(LEAST_S - 0.01)


def test_hooked_tasks_at_rest_need_no_timed_sample() -> None:
    """Tasks that announce themselves do not quicken the pace once they are loaded."""
    pace = Pace(0.1, 5, RULES)
    loaded = listed(listed(Tasks(), 0, (1, 100), owner=HOOKED), 2, (1, 100), owner=HOOKED)
    pace.sampled(loaded, 2)
    assert pause_s(pace, loaded, 2) == 5


def test_memory_that_settles_is_sampled_at_that_moment() -> None:
    """No pause skips the moment at which memory has stood still for long enough, however rare samples are by then."""
    pace = Pace(0.1, 5, RULES)
    tasks = listed(listed(Tasks(), 0, (1, 1), owner=HOOKED), 99.05, (1, 900), owner=HOOKED)
    pace.begins(100)
    pace.sampled(tasks, 100)
    assert pace.next_s(tasks, 100) == pytest.approx(100.05)
    assert pace.wait_s(100.06) <= 0 < pace.wait_s(100.04)
    pace.begins(100.06)
    pace.sampled(tasks, 100.06)  # the driver did not list the task
    assert pace.next_s(tasks, 100.06) == pytest.approx(100.16)
    assert pace.wait_s(100.1) > 0


def test_an_event_between_timed_samples_waits_for_nothing() -> None:
    """While a task loads there are ten samples a second; five events a second beside them are published at once."""
    throttle, now_s, pauses_s = RoundThrottle(), 100.0, []
    for number in range(200):
        now_s += 0.1
        pauses_s.append(throttle.pause_s(now_s, has_events=False))
        if number % 2 == 0:
            pauses_s.append(throttle.pause_s(now_s + 0.05, has_events=True))
    assert max(pauses_s) == 0.0


def test_events_without_end_share_ten_rounds_a_second() -> None:
    """The first twenty rounds follow one another at once, and then there are no more than one in each tenth."""
    throttle, now_s, rounds = RoundThrottle(), 100.0, 0
    while now_s < 110.0:
        rounds += 1
        now_s += 0.002 + throttle.pause_s(now_s, has_events=True)
    assert not throttle.is_calm(now_s)
    assert throttle.is_calm(now_s + AT_ONCE_S)
    assert AT_ONCE_S / WRITING_S <= rounds <= 10.0 / WRITING_S + AT_ONCE_S / WRITING_S + 1


def test_an_event_of_some_programs_that_load_all_the_time_waits_for_nothing() -> None:
    """Four programs that start, load twice and end, over and over: their events come in bunches, and none waits."""
    throttle, chance, pauses_s = RoundThrottle(), random.Random(7), []  # noqa: S311 - no secret
    events = sorted(100 + chance.uniform(0, 60) for _ in range(7 * 60))
    for now_s, is_event in sorted(
        [(at_s, True) for at_s in events] + [(100 + n / 10, False) for n in range(600)]
    ):
        pauses_s.append(throttle.pause_s(now_s, has_events=is_event))
    assert percentile(pauses_s, 99) == 0.0
