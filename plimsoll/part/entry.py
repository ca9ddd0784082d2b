"""The entry point of every part as a process: `python -m <part>`.

What always holds: the log is one JSON object a line on standard error. SIGTERM and SIGINT end the part in good order,
with exit code 0. Settings that cannot work end it with exit code 2 and one line for each: field, value and remedy. So
does any argument but `--help`. A part that must be started again, or that reached a limit (`ulimit`), ends with exit
code 1 and one line. A thread that hangs keeps no process from ending.
"""

import asyncio
import ctypes
import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Protocol, TypeVar

from plimsoll.part.ending import run_to_end
from plimsoll.part.errors import BAD_INPUT, CannotGoOnError, InputError, errors_in
from plimsoll.part.limits import limit_of
from plimsoll.part.log import get_logger, log_json

CANNOT_GO_ON: Final = 1


class PartSettings(Protocol):
    """The fields that every part's settings have."""

    @property
    def log_level(self) -> str:
        """A `LogLevel`."""


S = TypeVar("S", bound=PartSettings)


def run_part(
    name: str,
    load: Callable[[Mapping[str, str]], S],
    run: Callable[[S, asyncio.Event], Awaitable[None]],
    help_text: str,
) -> int:
    """Run a part until a signal; returns the exit code. The process must end then: a thread that hangs ends it.

    Args:
        name: the part's name in the log.
        load: reads the settings from the environment; raises `InputError` for a setting that cannot work.
        run: runs the part until the event is set; raises `InputError` or `CannotGoOnError`, alone or in a group.
        help_text: for `--help`.
    """
    status = CANNOT_GO_ON  # after an error that nobody foresaw
    try:
        status = _outcome(name, load, run, help_text)
    finally:
        leave_hanging_threads(status)
    return status


def _outcome(
    name: str,
    load: Callable[[Mapping[str, str]], S],
    run: Callable[[S, asyncio.Event], Awaitable[None]],
    help_text: str,
) -> int:
    log_json("info")
    status = 0
    try:
        if _asks_for_help(sys.argv[1:]):
            sys.stdout.write(help_text + "\n")
            return 0
        settings = load(os.environ)
        log_json(settings.log_level)
        settle_heap()
        asyncio.run(run_to_end(_until_signal(run, settings)))
    except* InputError as group:
        for error in errors_in(group, InputError):
            get_logger().error("refused to start", part=name, problem=str(error))
        status = BAD_INPUT
    except* CannotGoOnError as failures:
        for failure in errors_in(failures, CannotGoOnError):
            get_logger().error("ends, to be started again", part=name, problem=str(failure))
        status = CANNOT_GO_ON
    except* Exception as failures:
        if (limit := limit_of(failures)) is None:
            raise
        get_logger().error("ends, to be started again", part=name, problem=limit)
        status = CANNOT_GO_ON
    return status


def _asks_for_help(arguments: Sequence[str]) -> bool:
    for argument in arguments:
        if argument not in {"-h", "--help"}:
            remedy = "set environment variables instead; `--help` names them"
            raise InputError("argument", argument, "is unknown", remedy)
    return bool(arguments)


async def _until_signal(run: Callable[[S, asyncio.Event], Awaitable[None]], settings: S) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.set_default_executor(Threads(thread_name_prefix="asyncio"))
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await run(settings, stop)


_LIBC: Final = ctypes.CDLL(None)


def settle_heap() -> None:
    """Keep what lives from the collector, and give freed memory back to the kernel, in some milliseconds.

    Call it once, after the imports. Imported modules live as long as the part: walking their objects was some 3 % of
    the broker's work while many programs come and go. The imports free some 10 MiB below the top of glibc's heap, and
    nothing fills them again: that was a sixth of the monitor's resident memory. Another C library gives nothing back.
    """
    gc.collect()
    gc.freeze()
    if hasattr(_LIBC, "malloc_trim"):
        _LIBC.malloc_trim(0)


GRACE_S: Final = 5.0
"""Seconds that threads get for the work that they have begun. The kubelet gives a pod 30 s for everything."""


class Threads(ThreadPoolExecutor):
    """The pool of an event loop, for which the loop does not wait when it closes.

    A thread may hang in the lookup of a name, in a driver, or on a disk that does not answer, and nobody can end it.
    asyncio would wait for it at its end, in Python 3.11 without a limit.
    """

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002
        """Take no more work, and return at once. Work that has begun goes on, other work is dropped."""
        super().shutdown(wait=False, cancel_futures=True)


def leave_hanging_threads(status: int) -> None:
    """End the process with this exit code in `GRACE_S`, if threads keep it alive until then.

    Call this last, when nothing is left to do but to return from the program.
    """
    if _others():
        threading.Thread(target=_leave, args=(status,), name="end of the process", daemon=True).start()


def _others() -> list[threading.Thread]:
    """The living threads for which the interpreter waits."""
    return [one for one in threading.enumerate() if one is not threading.main_thread() and not one.daemon]


def _leave(status: int) -> None:
    time.sleep(GRACE_S)
    names = [thread.name for thread in _others()]
    get_logger().warning("ends without threads that hang", threads=names)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
