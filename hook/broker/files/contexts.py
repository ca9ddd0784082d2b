"""The cost of a context on each GPU, kept over the broker's restarts, because only a first process shows the cost
undisturbed.

A file that cannot be read counts as empty: the broker learns the costs again from the next processes. Everything here
blocks.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final

import msgspec
import structlog
from msgspec import Meta

from hook.broker.files.shared import write_whole
from plimsoll.ids import GpuUuid

CONTEXTS_NAME: Final = "contexts.json"
CONTEXTS_MODE: Final = 0o600

_log: Final = structlog.get_logger()
_Bytes = Annotated[int, Meta(gt=0, le=1 << 40)]


class ContextsFile:
    """`contexts.json` in the broker's root directory."""

    def __init__(self, root: Path) -> None:
        self._path = root / CONTEXTS_NAME

    def read(self) -> dict[GpuUuid, int]:
        """The saved costs, in bytes per GPU."""
        try:
            kept = msgspec.json.decode(self._path.read_bytes(), type=dict[str, _Bytes])
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            remedy = "nothing: it is measured again"
            _log.warning("contexts_damaged", file=str(self._path), problem=str(error), remedy=remedy)
            return {}
        return {GpuUuid(gpu): context_bytes for gpu, context_bytes in kept.items()}

    def write(self, context_bytes: Mapping[GpuUuid, int]) -> None:
        """Replace the saved costs, in bytes per GPU.

        Raises:
            OSError: the disk is full or read-only, for example.
        """
        write_whole(self._path, msgspec.json.encode(dict(context_bytes)), CONTEXTS_MODE)
