"""The troubles of the monitor's loop in the log.

What always holds: a trouble is one line for as long as it lasts, also beside another one.
"""

from typing import Final

from plimsoll.nvml.readings import NvmlAwayError
from plimsoll.part.log import get_logger

NO_GPU: Final = "no GPU"
"""The beginning of the trouble in which no driver answers."""

NO_DRIVER: Final = (
    "install NVIDIA's driver on this node, or, in a pod, give it the runtime class `nvidia` and "
    "NVIDIA_VISIBLE_DEVICES=all; the monitor looks again by itself"
)
"""The remedy where no driver answers."""

log = get_logger()


class Troubles:
    """The troubles that last. Everything here belongs to one task of the event loop."""

    def __init__(self) -> None:
        self._logged: set[str] = set()

    def report(self, trouble: str) -> None:
        """Log a trouble, unless it lasts since it was last logged."""
        if trouble not in self._logged:
            self._logged.add(trouble)
            log.error(trouble)

    def report_no_driver(self, error: NvmlAwayError) -> None:
        """Log that no driver answers."""
        self.report(f"{NO_GPU}: {error}; {error.remedy or NO_DRIVER}")

    def end(self, *, has_driver: bool) -> bool:
        """End all troubles but that of a driver which is still away; returns whether the last one ended now."""
        was_troubled = bool(self._logged)
        self._logged = {trouble for trouble in self._logged if not has_driver and trouble.startswith(NO_GPU)}
        return was_troubled and not self._logged
