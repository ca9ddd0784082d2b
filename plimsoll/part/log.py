"""The log of every part: one JSON object a line on standard error, also for what libraries and Python itself say.

Libraries log by `logging`, warnings and errors that nobody caught are written by Python's hooks. All of them pass
through this module, so that each line of the log is one JSON object, and no traceback spreads over several lines.
Commands write plain lines.
"""

import contextlib
import logging
import sys
import threading
import warnings
from typing import Any, Final, TextIO, cast

import structlog

LIBRARIES: Final = logging.WARNING
"""The lowest level of libraries' lines; below it they log each connection."""

_NAMES: Final = (
    structlog.processors.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
)
_TEXTS: Final = (structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=str))


def log_json(level: str) -> None:
    """Write every line from this level on as JSON, from now on; call it again for another level.

    Args:
        level: `debug`, `info`, `warning` or `error`. Lines of libraries are written from `warning` on.
    """
    lowest = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[*_NAMES, *_TEXTS],
        wrapper_class=structlog.make_filtering_bound_logger(lowest),
        logger_factory=structlog.WriteLoggerFactory(cast("TextIO", _StandardError())),
    )
    libraries = logging.StreamHandler(_StandardError())
    libraries.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *_NAMES],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *_TEXTS],
        )
    )
    logging.basicConfig(handlers=[libraries], level=max(lowest, LIBRARIES), force=True)
    warnings.showwarning = _warned
    sys.excepthook = _uncaught
    sys.unraisablehook = _unraisable
    threading.excepthook = _uncaught_in_thread


def log_plainly() -> None:
    """Write warnings and errors as plain lines on standard error: standard output belongs to a command's program."""
    structlog.configure(
        processors=[structlog.dev.ConsoleRenderer(colors=False)],
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=structlog.WriteLoggerFactory(cast("TextIO", _StandardError())),
    )


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
    file: TextIO | None = None,  # noqa: ARG001 - likewise
    line: str | None = None,  # noqa: ARG001 - likewise
) -> None:
    _log().warning(str(message), category=category.__name__, file=filename, line=lineno)


def _uncaught(kind: type[BaseException], error: BaseException, trace: Any) -> None:  # noqa: ANN401 - as Python gives it
    _log().error("ended by an unexpected error", exc_info=(kind, error, trace))


def _unraisable(given: "sys.UnraisableHookArgs") -> None:
    error = given.exc_value
    if error is not None:
        trace = (type(error), error, given.exc_traceback)
        _log().error(given.err_msg or "an error was ignored", of=repr(given.object), exc_info=trace)


def _uncaught_in_thread(given: threading.ExceptHookArgs) -> None:
    error = given.exc_value
    if error is not None:
        name = given.thread.name if given.thread else ""
        trace = (type(error), error, given.exc_traceback)
        _log().error("a thread was ended by an unexpected error", thread=name, exc_info=trace)


def _log() -> Any:  # noqa: ANN401 - structlog's own type
    return structlog.get_logger("plimsoll.part.log")
