"""The machine's clock in a time namespace."""

import pytest

from plimsoll.part.clock import Shifts, machine_ns, parse_shifts


@pytest.mark.parametrize(
    ("text", "shifts", "boot_ticks"),
    [
        ("monotonic           0         0\nboottime            0         0\n", Shifts(), 0),
        ("monotonic  -5 250000000\nboottime  7 5000000\n", Shifts(-4_750_000_000, 7_005_000_000), 700),
        ("monotonic  0 0\nboottime  -1 995000000\n", Shifts(0, -5_000_000), -1),
        ("", Shifts(), 0),
    ],
)
def test_the_shifts_of_a_namespace_are_read(text: str, shifts: Shifts, boot_ticks: int) -> None:
    """Seconds may be negative, and nanoseconds are added; the ticks are rounded downwards."""
    assert parse_shifts(text) == shifts
    assert shifts.boot_ticks == boot_ticks


def test_it_never_goes_back() -> None:
    """It is a monotonic clock."""
    assert machine_ns() <= machine_ns()
