"""`pynvml`'s functions with a clock, and the meaning of NVML's error codes: not offered, a fault of the card, or a
driver that is away.

What always holds: a query that this driver or card does not offer is no fault. The caller does without it. Any other
error of a card means that the card cannot be relied on.
"""

import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

import pynvml

from plimsoll.nvml.readings import NvmlAwayError
from plimsoll.part.processes import PROC

T = TypeVar("T")

_NOT_OFFERED: Final = frozenset(
    {
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_NOT_FOUND,
        pynvml.NVML_ERROR_NO_PERMISSION,
        pynvml.NVML_ERROR_INVALID_ARGUMENT,
        pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
    }
)

DRIVER_GONE: Final = frozenset(
    {
        pynvml.NVML_ERROR_UNINITIALIZED,
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
        pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
    }
)
"""The driver went away or was replaced while we ran: begin a new session."""

_LIBRARY: Final = "/libnvidia-ml.so"
_MISMATCH_REMEDY: Final = (
    "the driver's library and its kernel module are of different versions: load the library's module, or restart "
    "the machine"
)


def offered(call: Callable[[], T], otherwise: T) -> T:
    """The call's result, or `otherwise` where this driver or card does not have it."""
    try:
        return call()
    except pynvml.NVMLError as error:
        if error.value in _NOT_OFFERED:
            return otherwise
        raise


def away(what: str, error: pynvml.NVMLError, *, had_session: bool) -> NvmlAwayError:
    """The error for a driver that does not answer.

    NVML stays in a process for the process's life. After an upgrade the old library never works again there, so only
    a restart helps. A process that starts afresh has had no session, and maps the file that is there: it waits for
    the driver and does not end again.

    Args:
        what: what failed.
        error: NVML's answer.
        had_session: whether the driver has answered this process before.
    """
    is_mismatch = error.value == pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH
    return NvmlAwayError(
        f"{what} ({error})",
        remedy=_MISMATCH_REMEDY if is_mismatch else "",
        needs_restart=(is_mismatch and had_session) or _is_library_replaced(),
    )


def _is_library_replaced() -> bool:
    """Whether the file of NVML that this process has mapped was removed, or replaced by another."""
    lines = (PROC / "self" / "maps").read_text(errors="replace").splitlines()
    return any(_LIBRARY in line and line.endswith(" (deleted)") for line in lines)


Took = Callable[[str, float], None]
"""Takes a function's name and the seconds that one call of it took, also of a call that failed."""


class Calls:
    """Has every function of `pynvml` under its own name, timed."""

    def __init__(self, took: Took) -> None:
        self._took = took

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Wrap a function at its first use."""
        function, took = getattr(pynvml, name), self._took

        def timed(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - `pynvml` is untyped
            began_s = time.perf_counter()
            try:
                return function(*arguments, **named)
            finally:
                took(name, time.perf_counter() - began_s)

        setattr(self, name, timed)
        return timed


def ignore(name: str, seconds: float) -> None:
    """Take no notice of a call's cost."""
