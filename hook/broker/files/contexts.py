"""The cost of a context on each GPU, kept over the broker's restarts, because only a first process shows the cost
undisturbed.

Another version of the driver has other costs, so costs are kept with the version under which they were measured. A
file of another version, and one that cannot be read, count as empty: the broker learns the costs again from the next
processes. Everything here blocks.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from hook.broker.files.writing import read_json, write_whole
from plimsoll.ids import GpuUuid
from plimsoll.part.log import get_logger

CONTEXTS_NAME: Final = "contexts.json"
CONTEXTS_MODE: Final = 0o600
DRIVER_VERSION: Final = Path("/sys/module/nvidia/version")
"""The version of the driver that the kernel has loaded. The file exists without any program that uses the driver."""

_log: Final = get_logger()
_Bytes = Annotated[int, Meta(gt=0, le=1 << 40)]


class _Content(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    driver: str
    context_bytes: dict[str, _Bytes]


def driver_version() -> str:
    """The version of the driver; empty where no driver is loaded."""
    try:
        return DRIVER_VERSION.read_text().strip()
    except OSError:
        return ""


@dataclass(frozen=True, slots=True)
class ContextsFile:
    """`contexts.json` in the broker's root directory.

    Attributes:
        root: the directory.
        driver: see `driver_version`.
    """

    root: Path
    driver: str

    @property
    def _path(self) -> Path:
        return self.root / CONTEXTS_NAME

    def read(self) -> dict[GpuUuid, int]:
        """The costs that were saved under this version of the driver, in bytes per GPU."""
        content = read_json(self._path, _Content, "contexts_damaged", "nothing: it is measured again")
        if content is None:
            return {}
        if content.driver != self.driver:
            _log.info("contexts_of_another_driver", measured_under=content.driver, driver=self.driver)
            return {}
        return {GpuUuid(gpu): context_bytes for gpu, context_bytes in content.context_bytes.items()}

    def write(self, context_bytes: Mapping[GpuUuid, int]) -> None:
        """Replace the saved costs, in bytes per GPU.

        Raises:
            OSError: the disk is full or read-only, for example.
        """
        content = _Content(self.driver, {str(gpu): cost for gpu, cost in context_bytes.items()})
        write_whole(self._path, msgspec.json.encode(content), CONTEXTS_MODE)
