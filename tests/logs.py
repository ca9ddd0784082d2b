"""The lines of the log that a test reads."""

import contextlib
import logging
from collections.abc import Iterator
from typing import Any


class _Lines(logging.Handler):
    def __init__(self, lines: list[dict[str, Any]]) -> None:
        super().__init__()
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        line = {"event": record.getMessage(), "log_level": record.levelname.lower()}
        self._lines.append({**record.__dict__["fields"], **line})


@contextlib.contextmanager
def capture_logs() -> Iterator[list[dict[str, Any]]]:
    """Keep the lines of our log from standard error, and yield them: fields, `event` and `log_level`."""
    ours, lines = logging.getLogger("plimsoll"), list[dict[str, Any]]()
    handler, level = _Lines(lines), ours.level
    ours.addHandler(handler)
    ours.setLevel(logging.DEBUG)
    ours.propagate = False
    try:
        yield lines
    finally:
        ours.removeHandler(handler)
        ours.setLevel(level)
        ours.propagate = True
