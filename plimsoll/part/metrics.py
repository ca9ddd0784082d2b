"""The metrics that every part has: its process, and its version.

`process_*` are those of Prometheus' own client: CPU time, resident memory, open files, the time of the start.
"""

import importlib.metadata
from typing import Final

from prometheus_client import CollectorRegistry, Info, ProcessCollector

UNKNOWN = "unknown"
"""The version of a source tree that is not installed."""


def _version() -> str:
    try:
        return importlib.metadata.version("plimsoll")
    except importlib.metadata.PackageNotFoundError:
        return UNKNOWN


VERSION: Final = _version()
"""Read at import, because it is a file's, and parts make their registries on the event loop."""


def add_common(registry: CollectorRegistry, part: str) -> None:
    """Register the metrics of this process, and `plimsoll_build_info`.

    Args:
        registry: the part's own.
        part: the part's name in one word, such as `monitor`.
    """
    ProcessCollector(registry=registry)
    build = Info("plimsoll_build", "1, with the part and its version as labels.", registry=registry)
    build.info({"part": part, "version": VERSION})
