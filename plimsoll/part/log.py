"""The log of every part: one JSON object a line on standard error, also for what libraries and Python itself say.

Our lines with their fields, and those of libraries, go through Python's `logging`. Warnings, and errors that nobody
caught, are written by Python's hooks. So each line of the log is one JSON object, and no traceback spreads over
several lines. Commands write plain lines.

What always holds: this module imports nothing that asyncio does not import anyway, because every process of ours
begins with it.
"""

import contextlib
import json
import logging
import sys
import threading
import warnings
from datetime import UTC, datetime
from typing import Any, Final, TextIO

LIBRARIES: Final = logging.WARNING
"""The lowest level of libraries' lines; below it they log each connection."""

_OURS: Final = logging.getLogger("plimsoll")
_FIELDS: Final = "fields"
"""The attribute of a record that holds our fields, so that none meets an attribute of `logging`'s own."""


class Log:
    """Writes our lines: an event, and fields by name. For any thread."""

    def debug(self, event: str, /, **fields: Any) -> None:  # noqa: ANN401 - whatever `str` shows
        """Write a line for who looks for a fault."""
        self._write(logging.DEBUG, event, fields)

    def info(self, event: str, /, **fields: Any) -> None:  # noqa: ANN401 - likewise
        """Write a line about the usual course of things."""
        self._write(logging.INFO, event, fields)

    def warning(self, event: str, /, **fields: Any) -> None:  # noqa: ANN401 - likewise
        """Write a line about something that goes on all the same."""
        self._write(logging.WARNING, event, fields)

    def error(self, event: str, /, **fields: Any) -> None:  # noqa: ANN401 - likewise
        """Write a line about something that does not work; with `exc_info=True`, the traceback too."""
        self._write(logging.ERROR, event, fields)

    def exception(self, event: str, /, **fields: Any) -> None:  # noqa: ANN401 - likewise
        """Write an error's line with the traceback of the exception that is handled now."""
        self._write(logging.ERROR, event, {"exc_info": True, **fields})

    def _write(self, level: int, event: str, fields: dict[str, Any]) -> None:
        if _OURS.isEnabledFor(level):
            _OURS.log(level, event, exc_info=fields.pop("exc_info", None), extra={_FIELDS: fields})


_LOG: Final = Log()


def get_logger() -> Log:
    """The log of this process."""
    return _LOG


def log_json(level: str) -> None:
    """Write every line from this level on as JSON, from now on; call it again for another level.

    Args:
        level: `debug`, `info`, `warning` or `error`. Lines of libraries are written from `warning` on.
    """
    _to_standard_error(_Json(), logging.getLevelNamesMapping()[level.upper()])
    warnings.showwarning = _warned
    sys.excepthook = _uncaught
    sys.unraisablehook = _unraisable
    threading.excepthook = _uncaught_in_thread


def log_plainly() -> None:
    """Write warnings and errors as plain lines on standard error: standard output belongs to a command's program."""
    _to_standard_error(_Plain(), logging.WARNING)


def log_nothing() -> None:
    """Keep our lines back, for a command that has a line of its own for each outcome."""
    _OURS.setLevel(logging.CRITICAL)


def _to_standard_error(form: logging.Formatter, lowest: int) -> None:
    lines = logging.StreamHandler(_StandardError())
    lines.setFormatter(form)
    logging.basicConfig(handlers=[lines], level=max(lowest, LIBRARIES), force=True)
    _OURS.setLevel(lowest)


class _Json(logging.Formatter):
    """A line as a JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            **_named(record),
            "event": record.getMessage(),
            "level": record.levelname.lower(),
            "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat().replace("+00:00", "Z"),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class _Plain(logging.Formatter):
    """A line as a person reads it, with a traceback below it where there is one."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - `logging`'s name
        fields = (f"{name}={value}" for name, value in _named(record).items())
        return " ".join((record.message, *fields))


def _named(record: logging.LogRecord) -> dict[str, Any]:
    """The fields of our line; of a library's line, the library."""
    ours: dict[str, Any] | None = record.__dict__.get(_FIELDS)
    return {"logger": record.name} if ours is None else ours


class _StandardError:
    """Standard error. A failed write raises no error, because a log on a full disk must not end the part."""

    def write(self, text: str) -> None:
        with contextlib.suppress(OSError):
            sys.stderr.write(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            sys.stderr.flush()


def _warned(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,  # noqa: ARG001 - Python's signature
    line: str | None = None,  # noqa: ARG001 - likewise
) -> None:
    _LOG.warning(str(message), category=category.__name__, file=filename, line=lineno)


def _uncaught(kind: type[BaseException], error: BaseException, trace: Any) -> None:  # noqa: ANN401 - as Python gives it
    _LOG.error("ended by an unexpected error", exc_info=(kind, error, trace))


def _unraisable(given: "sys.UnraisableHookArgs") -> None:
    error = given.exc_value
    if error is not None:
        trace = (type(error), error, given.exc_traceback)
        _LOG.error(given.err_msg or "an error was ignored", of=repr(given.object), exc_info=trace)


def _uncaught_in_thread(given: threading.ExceptHookArgs) -> None:
    error = given.exc_value
    if error is not None:
        name = given.thread.name if given.thread else ""
        trace = (type(error), error, given.exc_traceback)
        _LOG.error("a thread was ended by an unexpected error", thread=name, exc_info=trace)
