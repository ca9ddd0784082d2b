"""The rules of relocation: whether pods are moved, for which waiting pods, and how often."""

import enum
from dataclasses import dataclass


class RelocationMode(enum.Enum):
    """Whether plans are carried out."""

    OFF = "off"  # nothing is searched for
    DRY_RUN = "dry-run"  # plans are reported, and nothing is moved
    ON = "on"


@dataclass(frozen=True, slots=True)
class RelocationRules:
    """Mode, `after_s`, `per_hour` and `spare_gpus` are settings.

    Attributes:
        mode: see `RelocationMode`.
        after_s: the time in seconds for which a pod waits before others are moved for it. A plan that was not found,
            or only reported, is searched for again after this time.
        keep_s: the longest time in seconds for which room is kept for a replacement: ten minutes, in which a pod
            is normally pulled and started.
        rest_s: the time in seconds from a pod's start in which it is not moved. A replacement has just started, so no
            pod is moved twice within this time.
        per_hour: the most pods of one owner that are moved within an hour.
        spare_gpus: the number of whole GPUs to keep free: with fewer, pods are moved together, away from GPUs in use
            to others in use. 0: pods are moved for waiting pods alone.
    """

    mode: RelocationMode = RelocationMode.OFF
    after_s: float = 60.0
    keep_s: float = 600.0
    rest_s: float = 600.0
    per_hour: int = 6
    spare_gpus: int = 0

    @property
    def check_s(self) -> float:
        """The pause between two readings of the waiting pods, in seconds."""
        return min(max(self.after_s / 10, 0.05), 5.0)
