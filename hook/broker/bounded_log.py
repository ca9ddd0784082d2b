"""The broker's log for lines that others can cause: programs of a container, or a part that sends bad requests.

What always holds: for each container and sort of line, the log takes a burst, and then one line every `REFILL_S`
seconds. Such a line says how many lines were left out before it. So no container hides another's lines, and no sort
of line hides another sort. The counts of a container end with the container.
"""

import threading
import time
from dataclasses import dataclass
from typing import Any, Final

from hook.broker.core.ids import ContainerKey
from plimsoll.part.log import get_logger

BURST: Final = 32
"""The lines of a sort that may be written in a burst. Programs that start, fail and end in the usual way cause
fewer."""

REFILL_S: Final = 10.0
"""Seconds between two lines after the burst. Each sort of line then makes at most some 2 MB a day."""

LONGEST_TEXT: Final = 500
"""The most characters of a text in a log line. The text may come from a program."""

_log: Final = get_logger()


@dataclass(slots=True)
class _Sort:
    """A sort of line of a container.

    Attributes:
        lines: the number of lines that may be written at `since_s`.
        left_out: lines left out since the latest written line.
    """

    since_s: float
    lines: float = BURST
    left_out: int = 0

    def take(self, now_s: float) -> int | None:
        """How many lines were left out before this line; None if this line is left out too."""
        self.lines = min(BURST, self.lines + (now_s - self.since_s) / REFILL_S)
        self.since_s = now_s
        if self.lines < 1:
            self.left_out += 1
            return None
        self.lines -= 1
        left_out, self.left_out = self.left_out, 0
        return left_out


class BoundedLog:
    """Writes lines about containers, or about the node (None), within their bounds. For any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sorts: dict[tuple[ContainerKey | None, str], _Sort] = {}

    def info(self, event: str, container: ContainerKey | None, **details: Any) -> None:  # noqa: ANN401 - as the log takes
        """Write a line, or count it as left out."""
        self._write("info", event, container, details)

    def warning(self, event: str, container: ContainerKey | None, **details: Any) -> None:  # noqa: ANN401 - likewise
        """Write a line, or count it as left out."""
        self._write("warning", event, container, details)

    def error(self, event: str, container: ContainerKey | None, **details: Any) -> None:  # noqa: ANN401 - likewise
        """Write a line, or count it as left out."""
        self._write("error", event, container, details)

    def forget(self, container: ContainerKey) -> None:
        """Forget a container that was removed, and log how many of its lines were left out."""
        with self._lock:
            gone = {key: sort for key, sort in self._sorts.items() if key[0] == container}
            self._sorts = {key: sort for key, sort in self._sorts.items() if key not in gone}
        for (_, event), sort in gone.items():
            if sort.left_out:
                _log.info("lines_left_out", **_named(container), of=event, left_out=sort.left_out)

    def _write(self, level: str, event: str, container: ContainerKey | None, details: dict[str, Any]) -> None:
        now_s = time.monotonic()
        with self._lock:
            left_out = self._sorts.setdefault((container, event), _Sort(now_s)).take(now_s)
        if left_out is None:
            return
        shown = {name: _cut(value) for name, value in details.items()}
        counted = {"left_out": left_out} if left_out else {}
        getattr(_log, level)(event, **_named(container), **shown, **counted)


def _cut(value: Any) -> Any:  # noqa: ANN401 - likewise
    return value[:LONGEST_TEXT] + "…" if isinstance(value, str) and len(value) > LONGEST_TEXT else value


def _named(container: ContainerKey | None) -> dict[str, str]:
    return {"pod": container.pod, "container": container.container} if container else {}
