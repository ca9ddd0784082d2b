"""The limits of a process and of its machine: names the one that an error comes from, with the remedy.

What always holds: this module imports nothing slow, because it must be there before a limit is reached.
"""

import errno
import resource
from collections.abc import Iterator
from typing import Final

_BY_NUMBER: Final = {
    errno.EMFILE: ("open files", "-n", resource.RLIMIT_NOFILE, 1),
    errno.EAGAIN: ("processes and threads", "-u", resource.RLIMIT_NPROC, 1),
    errno.ENOMEM: ("memory", "-v", resource.RLIMIT_AS, 1024),
    errno.EFBIG: ("a file's size", "-f", resource.RLIMIT_FSIZE, 1024),
}
"""By the number of an error: what is limited, the option of bash's `ulimit`, the limit, and bash's unit of it."""

_NO_THREAD: Final = "can't start new thread"
_NO_MAPPING: Final = ("failed to map", "cannot allocate memory")
"""Words by which the linker refuses to load a library."""


def limit_of(error: BaseException) -> str | None:
    """The limit that was reached and its remedy, in one sentence; None for an error of another kind."""
    return next((_shown(number) for one in _chain(error) if (number := _number(one)) is not None), None)


def memory_limit() -> str | None:
    """The limit on this process's memory with the remedy, for a library that failed without saying why; or None."""
    return None if _is_unlimited(resource.RLIMIT_AS) else _shown(errno.ENOMEM)


def _number(error: BaseException) -> int | None:
    text = str(error)
    if isinstance(error, MemoryError) or any(words in text.lower() for words in _NO_MAPPING):
        return errno.ENOMEM
    if isinstance(error, RuntimeError) and _NO_THREAD in text:
        # The stack of a thread needs memory too, and a limit on that is rarer than one on threads.
        return errno.EAGAIN if _is_unlimited(resource.RLIMIT_AS) else errno.ENOMEM
    known = {*_BY_NUMBER, errno.ENFILE}
    return error.errno if isinstance(error, OSError) and error.errno in known else None


def _shown(number: int) -> str:
    if number == errno.ENFILE:
        return "the machine may open no more files; raise the sysctl fs.file-max"
    limited, option, limit, unit = _BY_NUMBER[number]
    if _is_unlimited(limit):
        return f"the machine has no room for more {limited}; end some programs, or raise the control group's limit"
    return f"the limit on {limited} is reached: `ulimit {option}` is {resource.getrlimit(limit)[0] // unit}; raise it"


def _is_unlimited(limit: int) -> bool:
    return resource.getrlimit(limit)[0] == resource.RLIM_INFINITY


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error, those in a group, and those that it came from."""
    rest: list[BaseException | None] = [error]
    seen: list[BaseException] = []
    while rest:
        one = rest.pop()
        if one is None or any(one is other for other in seen):
            continue
        seen.append(one)
        yield one
        rest += [
            one.__cause__,
            one.__context__,
            *(one.exceptions if isinstance(one, BaseExceptionGroup) else ()),
        ]
