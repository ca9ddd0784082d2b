"""Events that come without end share rounds, and an event alone waits for nothing."""

from monitor.core.gathering import AT_ONCE_S, WRITING_S, Gathering


def test_an_event_between_timed_samples_waits_for_nothing() -> None:
    """While a task loads there are ten samples a second; five events a second beside them are published at once."""
    gathering, now_s, pauses_s = Gathering(), 100.0, []
    for number in range(200):
        now_s += 0.1
        pauses_s.append(gathering.pause_s(now_s, has_written=False))
        if number % 2 == 0:
            pauses_s.append(gathering.pause_s(now_s + 0.05, has_written=True))
    assert max(pauses_s) == 0.0


def test_events_without_end_share_ten_rounds_a_second() -> None:
    """The first ten rounds follow one another at once, and then there are no more than one in each tenth."""
    gathering, now_s, rounds = Gathering(), 100.0, 0
    while now_s < 110.0:
        rounds += 1
        now_s += 0.002 + gathering.pause_s(now_s, has_written=True)
    assert AT_ONCE_S / WRITING_S <= rounds <= 10.0 / WRITING_S + AT_ONCE_S / WRITING_S + 1
