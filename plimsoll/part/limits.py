"""The limits of a process and of its machine: names the one that an error comes from, with the remedy.

What always holds: this module imports nothing slow, because it must be there before a limit is reached.
"""

import errno
import resource
from collections.abc import Iterator
from typing import Final

_BY_NUMBER: Final = {
    errno.EMFILE: ("open files", 1, {"-n": resource.RLIMIT_NOFILE}),
    errno.EAGAIN: ("processes and threads", 1, {"-u": resource.RLIMIT_NPROC}),
    errno.ENOMEM: ("memory", 1024, {"-v": resource.RLIMIT_AS, "-d": resource.RLIMIT_DATA}),
    errno.EFBIG: ("a file's size", 1024, {"-f": resource.RLIMIT_FSIZE}),
}
"""By the number of an error: what is limited, bash's unit of it, and the limits by the option of bash's `ulimit`."""

_NO_THREAD: Final = "can't start new thread"
_NO_MAPPING: Final = ("failed to map", "cannot allocate memory")
"""Words by which the linker refuses to load a library."""


def limit_of(error: BaseException) -> str | None:
    """The limit that was reached and its remedy, in one sentence; None for an error of another kind."""
    return next((_shown(number) for one in _chain(error) if (number := _number(one)) is not None), None)


def memory_limit() -> str | None:
    """The limit on this process's memory with the remedy, for a library that failed without saying why; or None."""
    return _shown(errno.ENOMEM) if _set_limits(errno.ENOMEM) else None


def _number(error: BaseException) -> int | None:
    text = str(error)
    if isinstance(error, MemoryError) or any(words in text.lower() for words in _NO_MAPPING):
        return errno.ENOMEM
    if isinstance(error, RuntimeError) and _NO_THREAD in text:
        # The stack of a thread needs memory too, and a limit on that is rarer than one on threads.
        return errno.ENOMEM if _set_limits(errno.ENOMEM) else errno.EAGAIN
    known = {*_BY_NUMBER, errno.ENFILE} - (set() if _set_limits(errno.EFBIG) else {errno.EFBIG})
    return error.errno if isinstance(error, OSError) and error.errno in known else None


def _shown(number: int) -> str:
    if number == errno.ENFILE:
        return "the machine may open no more files; raise the sysctl fs.file-max"
    limited = _BY_NUMBER[number][0]
    if not (values := _set_limits(number)):
        return f"the machine has no room for more {limited}; end some programs, or raise the control group's limit"
    return f"the limit on {limited} is reached: {' and '.join(values)}; raise it"


def _set_limits(number: int) -> list[str]:
    """The limits that may cause an error and are set, as bash shows them."""
    _, unit, limits = _BY_NUMBER[number]
    soft = {option: resource.getrlimit(limit)[0] for option, limit in limits.items()}
    return [
        f"`ulimit {option}` is {value // unit}"
        for option, value in soft.items()
        if value != resource.RLIM_INFINITY
    ]


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
