"""The machine's clock: what CLOCK_MONOTONIC shows in the first time namespace.

A time namespace shifts CLOCK_MONOTONIC, CLOCK_BOOTTIME, and with it the start times in `/proc`. Broker, monitor and
programs may run in different ones. So every time and start time that another process reads is written without the
writer's shift. Differences and deadlines inside one process need no such care.
"""

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")

_S: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Shifts:
    """How far a time namespace shifts its clocks.

    Attributes:
        monotonic_ns: CLOCK_MONOTONIC.
        boot_ns: CLOCK_BOOTTIME.
    """

    monotonic_ns: int = 0
    boot_ns: int = 0

    @property
    def boot_ticks(self) -> int:
        """The shift of start times in whole ticks; a shift by parts of a tick may leave one tick more."""
        return self.boot_ns * TICKS_PER_S // _S


def parse_shifts(text: str) -> Shifts:
    """Parse a `/proc/<pid>/timens_offsets`: per line a clock, seconds, and nanoseconds."""
    lines = (line.split() for line in text.splitlines())
    shifts = {line[0]: int(line[1]) * _S + int(line[2]) for line in lines if len(line) == 3}
    return Shifts(shifts.get("monotonic", 0), shifts.get("boottime", 0))


def _own() -> Shifts:
    try:
        return parse_shifts(Path("/proc/self/timens_offsets").read_text())
    except OSError:  # older than Linux 5.6: all processes read one clock
        return Shifts()


OWN: Final = _own()
"""The shifts of this process. They change at an exec alone."""


def machine_ns() -> int:
    """The machine's clock now."""
    return time.monotonic_ns() - OWN.monotonic_ns
