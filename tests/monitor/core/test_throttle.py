"""Events that come without end share rounds, and an event alone waits for nothing."""

import random

from bench.measures.percentile import percentile
from monitor.core.throttle import AT_ONCE_S, WRITING_S, RoundThrottle


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
