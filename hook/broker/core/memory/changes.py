"""When a process's memory has changed enough to send to the monitor.

What always holds: after each change that counts, the subscriber's state differs from the counts by less than
`least_change_bytes`.
"""

from dataclasses import dataclass
from typing import Final

LEAST_CHANGE_BYTES: Final = 64 * 1024 * 1024
"""A smaller change is never sent: activations of a running model come and go by tens of MiB. The monitor's
`monitor.core.lifecycle.RELOAD_BYTES` is the same."""

LEAST_CHANGE_RATIO: Final = 0.1
"""This part of a process's peak, so that a process of 20 GiB is no more talkative than one of 2 GiB."""


@dataclass(frozen=True, slots=True)
class ProcessMemory:
    """A process's memory on one GPU by its own counts, now and at most so far."""

    used_bytes: int
    peak_bytes: int


NOTHING: Final = ProcessMemory(0, 0)
"""The state before the first message."""


def is_change(sent: ProcessMemory, now: ProcessMemory) -> bool:
    """Whether `now` is worth a message after `sent`."""
    least_bytes = max(LEAST_CHANGE_BYTES, LEAST_CHANGE_RATIO * now.peak_bytes)
    is_other_use = abs(now.used_bytes - sent.used_bytes) >= least_bytes
    return is_other_use or now.peak_bytes - sent.peak_bytes >= least_bytes
