"""Finds processes that count memory in their words, but that NVML does not list: an exec may have made them other
programs.

An exec frees the old program's GPU memory but does not end the process, so the slot's words outlive the memory. The
absence from NVML's list is only a suspicion. The engine then checks whether the process still maps `counts`.
"""

from collections.abc import Mapping

from hook.broker.core.ids import ContainerKey, Process
from hook.broker.core.instructions import VacateSlots
from plimsoll.broker.wire import Measured
from plimsoll.ids import ProcessKey


class Absences:
    """The processes with memory in their words that the latest measurement did not list."""

    def __init__(self) -> None:
        self._absent: frozenset[tuple[ContainerKey, ProcessKey]] = frozenset()

    def take(
        self, measured: Measured, holders: Mapping[tuple[ContainerKey, ProcessKey], int]
    ) -> list[VacateSlots]:
        """Take in a measurement.

        Args:
            measured: the measurement by NVML.
            holders: the owner words of all processes with memory in their words.

        Returns:
            An instruction for each process that was absent from two measurements in a row.
        """
        listed = {ProcessKey(process.pid, process.start_ticks) for process in measured.processes}
        absent = frozenset(holder for holder in holders if holder[1] not in listed)
        suspects = sorted(absent & self._absent)
        self._absent = absent
        return [VacateSlots(place, Process(key, holders[place, key])) for place, key in suspects]
