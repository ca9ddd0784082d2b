"""The metrics that every part has: its process, and its version.

`process_*` are those of Prometheus' own client: CPU time, resident memory, open files, the time of the start.
"""

import importlib.metadata
from typing import Final

from prometheus_client import CollectorRegistry, Info, ProcessCollector, disable_created_metrics

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

    From then on no metric of this process has a `_created` series: nothing reads them, and each histogram and counter
    would have one more series.

    Args:
        registry: the part's own.
        part: the part's name in one word, such as `monitor`.
    """
    disable_created_metrics()  # type: ignore[no-untyped-call]  # the library gives it no types
    ProcessCollector(registry=registry)
    build = Info("plimsoll_build", "1, with the part and its version as labels.", registry=registry)
    build.info({"part": part, "version": VERSION})
