"""Who counts memory that NVML does not show: a process that became another program by an exec, as it may be.

An exec ends the old program's GPU memory but not the process, so its slot's words outlive what they stand for. What
NVML shows of a process only says that it is worth a look; whether it let go of `counts` is for the engine to see.
"""

from collections.abc import Mapping

from hook.broker.core.ids import ContainerKey, Process, ProcessKey
from hook.broker.core.turns import VacateSlots
from plimsoll.broker.wire import Measured


class Absences:
    """The holders of words that the latest measurement did not list."""

    def __init__(self) -> None:
        self._absent: frozenset[tuple[ContainerKey, ProcessKey]] = frozenset()

    def take(
        self, measured: Measured, holders: Mapping[tuple[ContainerKey, ProcessKey], int]
    ) -> list[VacateSlots]:
        """Take in a measurement; who is absent from two running is to be looked at.

        Args:
            measured: what NVML showed.
            holders: the owner words of everybody who has any memory in its words.
        """
        listed = {ProcessKey(process.pid, process.start_ticks) for process in measured.processes}
        absent = frozenset(holder for holder in holders if holder[1] not in listed)
        suspects = sorted(absent & self._absent)
        self._absent = absent
        return [VacateSlots(place, Process(key, holders[place, key])) for place, key in suspects]
