"""The table of events beside polling, and the picture, follow from what was sent and what lived."""

import pytest

from bench.measures.percentile import percentile
from bench.monitor.subscriber import Arrival
from bench.monitor.traffic import Lived, Sent, chart, compared

S = 1_000_000_000


def arrival(at_s: float, size_bytes: int) -> Arrival:
    """A message that is no task event."""
    return Arrival(100 * S + int(at_s * S), "plimsoll.v1.node.state.alpha", b"{}", size_bytes)


def test_polls_have_the_size_of_the_newest_event() -> None:
    """Messages and bytes are scaled to ten minutes, and a task between two polls is never seen."""
    arrivals = [arrival(0.5, 100), arrival(10.5, 300)]
    lives = [Lived(1, 1.2, 8.0), Lived(2, 6.0, 6.5), Lived(3, 1.2, 59.0)]
    found = compared(arrivals, lives, 100 * S, 60.0)
    rows = found["traffic"]
    assert (rows["events"]["messages"], rows["events"]["bytes"]) == (20, 4000)
    assert (rows["poll_5s"]["messages"], rows["poll_5s"]["bytes"]) == (120, 10 * (2 * 100 + 10 * 300))
    assert (rows["poll_5s"]["tasks_unseen"], rows["poll_30s"]["tasks_unseen"]) == (1, 2)
    assert rows["poll_5s"]["start_delay_s_mean"] == pytest.approx(3.8)
    assert found["bytes_saved_pct_5s"] == pytest.approx(87.5)
    assert found["stream_gib_per_day_1000_nodes"] == pytest.approx(0.5)


def test_the_picture_has_a_line_for_each_pace() -> None:
    """Events and three paces of polling are drawn over the minutes of the scene."""
    picture = chart([Sent(1.0, 5000), Sent(50.0, 5000)], 60.0)
    assert picture.count("<polyline") == 4
    assert "a poll every 30 s" in picture


def test_a_percentile_is_a_measured_value() -> None:
    """The p99 of few values is the largest one, and of none it is infinite."""
    assert percentile([3.0, 1.0, 2.0], 99) == 3.0
    assert percentile(list(map(float, range(1, 201))), 99) == 198.0
    assert percentile([], 99) == float("inf")
