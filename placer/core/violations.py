"""The pods that pass their lines in spite of enforcement, as events accuse them and measurements confirm it.

The broker announces `limit.violated` and `limit.unenforced` once for each finding, after two measurements of its own.
An event alone ends no pod: it makes a pod on a GPU a suspect, and the node's further reports must show more memory
than the line, all of them, for a grace time.

What always holds: a report at or below the line ends a run of measurements, so does a pod that is no longer booked.
Only containers with declared memory have a line here: the line of a best-effort pod sinks as promises grow, and a
whole GPU has none. The pod's containers count together.
"""

from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Final

from placer.core.booking import Booking, learns
from placer.core.ledger import Ledger
from plimsoll.events import NodeState
from plimsoll.ids import GpuUuid, NodeName, PodUid
from plimsoll.quantity import MIB

MEASUREMENTS: Final = 3
"""The least reports in a row that confirm a suspicion: one may fall between an allocation and its charge, and the
next between a program's end and the driver's cleaning up."""

SLACK_BYTES: Final = 2 * MIB
"""The bytes past the line that do not count, as in the broker's audit: the driver gives memory in such blocks."""

SUSPECTS_AT_MOST: Final = 10_000
"""Suspects that are kept, some 3 MiB; the one accused first is dropped first. Its next finding accuses it again."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A run of reports that show a pod past its line on one GPU.

    Attributes:
        since_s: when the first of them arrived, on a clock that never goes back.
        seen_s: when the last one arrived.
        measurements: their number.
        used_bytes, line_bytes: as the last one shows them.
    """

    pod: PodUid
    node: NodeName
    gpu: GpuUuid
    since_s: float
    seen_s: float
    measurements: int
    used_bytes: int
    line_bytes: int


class Violations:
    """The suspects. Not thread-safe: one event loop owns it."""

    def __init__(self, ledger: Ledger, grace_s: float) -> None:
        """Confirm suspicions by the lines in this ledger, after a grace time in seconds."""
        self._ledger = ledger
        self._grace_s = grace_s
        self._suspects: OrderedDict[tuple[PodUid, GpuUuid], Violation | None] = OrderedDict()

    def suspect(self, pod: PodUid, gpu: GpuUuid | None) -> None:
        """An event accuses a pod, on one GPU or on all of its own. The same again changes nothing."""
        booking = self._ledger.booking(pod)
        gpus = (gpu,) if gpu is not None else {one.gpu for one in booking.grants} if booking else ()
        for one in gpus:
            self._suspects.setdefault((pod, one), None)
        while len(self._suspects) > SUSPECTS_AT_MOST:
            self._suspects.popitem(last=False)

    def measure(self, state: NodeState, now_s: float) -> None:
        """Take in a report.

        Args:
            state: the state of one node.
            now_s: when it arrived, on a clock that never goes back.
        """
        if not self._suspects:
            return
        gpus = {gpu.uuid: gpu for gpu in state.gpus}
        for (pod, uuid), run in tuple(self._suspects.items()):
            booking = self._ledger.booking(pod)
            if booking is None:
                del self._suspects[pod, uuid]
                continue
            if booking.node != state.node:
                continue
            line_bytes, gpu = line_of(self._ledger, booking, uuid), gpus.get(uuid)
            if line_bytes is None:
                del self._suspects[pod, uuid]
            elif gpu is not None:
                used_bytes = sum(task.used_bytes for task in gpu.tasks if task.pod == pod)
                began = run or Violation(pod, state.node, uuid, now_s, now_s, 0, used_bytes, line_bytes)
                self._suspects[pod, uuid] = _measured(began, now_s, used_bytes, line_bytes)

    def confirmed(self) -> list[Violation]:
        """The pods past their lines by enough measurements, for the grace time; each on the GPU accused first."""
        found: dict[PodUid, Violation] = {}
        for run in self._suspects.values():
            if run is None or run.measurements < MEASUREMENTS or run.seen_s - run.since_s < self._grace_s:
                continue
            if self._ledger.booking(run.pod) is not None:
                found.setdefault(run.pod, run)
        return list(found.values())


def _measured(run: Violation, now_s: float, used_bytes: int, line_bytes: int) -> Violation | None:
    """The run with one more report; None if the report ends it."""
    if used_bytes <= line_bytes + SLACK_BYTES:
        return None
    return replace(
        run,
        seen_s=now_s,
        measurements=run.measurements + 1,
        used_bytes=used_bytes,
        line_bytes=line_bytes,
    )


def line_of(ledger: Ledger, booking: Booking, gpu: GpuUuid) -> int | None:
    """The bytes that a pod's containers declare on a GPU together; None if one of them declares none."""
    on = [grant for grant in booking.grants if grant.gpu == gpu]
    if not on or any(grant.whole or learns(grant) for grant in on):
        return None
    return ledger.promise(booking, gpu).declared_bytes
