"""The health of the machine's GPUs as the broker knows it, for `plimsoll run`, `plimsoll status` and the doctor.

What always holds: `plimsoll.gpu_health` judges, for the broker as for the monitor. Where a monitor runs, its reports
count alone. Elsewhere the broker's own readings count, and the XID errors that it saw. They outlive a restart of the
broker, because NVML shows no XID error twice. A reboot ends them.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from hook.broker.files.writing import read_json, write_whole
from plimsoll import gpu_health
from plimsoll.gpu_events import GpuHealth
from plimsoll.gpu_health import HOLD_S, DriverView, GpuRecord, GpuRecords
from plimsoll.nvml.readings import GpuSample, XidSeen
from plimsoll.part.log import get_logger
from plimsoll.part.processes import boot_id
from plimsoll.part.times import rfc3339

if TYPE_CHECKING:
    from plimsoll.nvml.library import Nvml

FILE_NAME: Final = "gpus.json"
FILE_MODE: Final = 0o600

XIDS_MAX: Final = 256
"""XID errors that wait for the first reading of their GPU."""

_log: Final = get_logger()


class _Content(msgspec.Struct, frozen=True):
    boot_id: str
    records: tuple[GpuRecord, ...]


class GpusHealth:
    """The health of each GPU.

    Attributes:
        reported: the unhealthy GPUs of the monitor's last message; None where no monitor has sent any.
    """

    def __init__(self, root: Path) -> None:
        self.reported: tuple[GpuHealth, ...] | None = None
        self._path = root / FILE_NAME
        self._records: GpuRecords = {}
        self._xids: tuple[XidSeen, ...] = ()

    @property
    def unhealthy(self) -> tuple[GpuHealth, ...]:
        """The GPUs with conditions."""
        return gpu_health.unhealthy(self._records) if self.reported is None else self.reported

    def restore(self) -> None:
        """Take the conditions of an earlier broker of this boot up again. Blocks."""
        remedy = "nothing: the GPUs are judged anew; XID errors of earlier are forgotten"
        content = read_json(self._path, _Content, "gpu_health_damaged", remedy)
        if content is not None and content.boot_id == boot_id():
            self._records = gpu_health.restored(content.records, time.monotonic())

    def take(self, seen: DriverView) -> bool:
        """Judge what the driver shows; returns whether a condition came or went."""
        xids = (*self._xids, *seen.xids)
        self._records, changes = gpu_health.update(self._records, replace(seen, xids=xids), HOLD_S)
        self._xids = tuple(one for one in xids if one.gpu not in self._records)[:XIDS_MAX]
        for change in changes:
            one = change.health
            text = one.reason or "nothing is wrong with it any more"
            _log.warning("gpu_health_changed", gpu=one.gpu, health=one.health.value, reason=text)
        return bool(changes)

    def write(self) -> None:
        """Keep the conditions for the next broker. Blocks.

        Raises:
            OSError: the disk is full or read-only, for example.
        """
        # The times of this broker's clock mean nothing to the next one.
        records = tuple(replace(one, seen_s={}) for one in self._records.values())
        write_whole(self._path, msgspec.json.encode(_Content(boot_id(), records)), FILE_MODE)


def driver_view(nvml: "Nvml", samples: Sequence[GpuSample]) -> DriverView:
    """The GPUs' health as the driver shows it, just after it gave these samples.

    Raises:
        NvmlAwayError: the driver went away.
    """
    failing = nvml.failing  # before the next reading
    present = tuple(one.reading for one in samples)
    seen = _moment()
    return replace(
        seen,
        present=present,
        failing=failing,
        figures=nvml.health(),
        session=nvml.sessions,
        divided=nvml.divided,
    )


def struck(seen: XidSeen) -> DriverView:
    """An XID error, of which NVML reports nothing but the number."""
    return replace(_moment(), xids=(seen,))


def _moment() -> DriverView:
    return DriverView(time.monotonic(), rfc3339(datetime.now(UTC)))
