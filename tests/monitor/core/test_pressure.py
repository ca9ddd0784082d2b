"""Pressure: one event when memory becomes short, and one when it no longer is."""

from hypothesis import given
from hypothesis import strategies as st

from monitor.core.conditions import PressureRules, Short, update_pressure
from plimsoll.events import Gpu
from plimsoll.ids import GpuUuid

RULES = PressureRules(begin_pct=5, end_pct=10)


def gpu(free_bytes: int) -> Gpu:
    """A GPU of 1000 bytes."""
    return Gpu(
        uuid=GpuUuid("g"), index=0, model="L4", usable_bytes=1000, used_bytes=1000 - free_bytes, idle_pct=0
    )


def changes(*free_bytes: int) -> list[tuple[bool, int]]:
    """The changes that these amounts of free memory cause, as (short, mark that was passed)."""
    short: Short = {}
    found: list[tuple[bool, int]] = []
    for time, free in enumerate(free_bytes):
        short, new = update_pressure(short, [gpu(free)], f"t{time}", RULES)
        found += [(one.short, one.limit_bytes) for one in new]
    return found


def test_memory_between_the_marks_changes_nothing() -> None:
    """Short begins below the first mark and ends at the second; what moves around one mark makes one event."""
    assert changes(1000, 51, 50) == []
    assert changes(50, 49, 50, 49, 99, 49) == [(True, 50)]
    assert changes(49, 99, 100, 99, 50) == [(True, 50), (False, 100)]


def test_a_gpu_that_cannot_be_read_keeps_its_state() -> None:
    """A lost GPU is not relieved: it has no free memory that is known."""
    short, _ = update_pressure({}, [gpu(10)], "t", RULES)
    assert update_pressure(short, [], "later", RULES) == (short, ())


@given(st.lists(st.integers(0, 1000)))
def test_begins_and_ends_take_turns(free_bytes: list[int]) -> None:
    """Whatever memory does, no event repeats the one before."""
    shorts = [short for short, _ in changes(*free_bytes)]
    assert shorts == [place % 2 == 0 for place in range(len(shorts))]
