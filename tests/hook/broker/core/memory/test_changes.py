"""When a change of memory is worth a message."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hook.broker.core.codec import SLOT_BYTES, ProcessMemory, memory_in
from hook.broker.memory_changes import NOTHING, is_change
from plimsoll.broker.pages import PEAK_GPUS, Slot

MIB, GIB = 1 << 20, 1 << 30


@pytest.mark.parametrize(
    ("sent", "now", "expected"),
    [
        ((100 * MIB, 100 * MIB), (163 * MIB, 163 * MIB), False),
        ((100 * MIB, 100 * MIB), (164 * MIB, 164 * MIB), True),
        ((164 * MIB, 164 * MIB), (100 * MIB, 164 * MIB), True),
        ((10 * GIB, 10 * GIB), (10 * GIB - 900 * MIB, 10 * GIB), False),
        ((10 * GIB, 10 * GIB), (9 * GIB, 10 * GIB), True),
        ((GIB, GIB), (GIB, 2 * GIB), True),
    ],
)
def test_a_tenth_and_64_mib_are_a_change(
    sent: tuple[int, int], now: tuple[int, int], *, expected: bool
) -> None:
    """A change of the use or the peak counts from 64 MiB and from a tenth of the peak on."""
    assert is_change(ProcessMemory(*sent), ProcessMemory(*now)) is expected


@given(st.lists(st.integers(0, 40 * GIB), max_size=40))
def test_a_subscriber_is_never_further_off_than_a_change(uses: list[int]) -> None:
    """After each reading the last message differs from the use by less than the smallest change."""
    sent, peak = NOTHING, 0
    for used in uses:
        peak = max(peak, used)
        now = ProcessMemory(used, peak)
        sent = now if is_change(sent, now) else sent
        assert abs(sent.used_bytes - used) < max(64 * MIB, 0.1 * peak)


def test_a_slot_of_an_earlier_library_has_its_use_as_peak() -> None:
    """Without peaks in the slot the use is the peak, and GPUs past the recorded ones have theirs so too."""
    slot = Slot(owner=7)
    slot.used_bytes[:2] = (5, 6)
    slot.used_bytes[PEAK_GPUS] = 8
    slot.peak_bytes[:2] = (0, 9)
    owner, memory = memory_in(bytes(slot), PEAK_GPUS + 1)
    assert (owner, memory[:2], memory[-1]) == (
        7,
        (ProcessMemory(5, 5), ProcessMemory(6, 9)),
        ProcessMemory(8, 8),
    )
    assert memory_in(bytes(SLOT_BYTES - 1), 1) == (0, ())
