"""Limits of the current context."""

from ctypes import byref

from tests.hook.lib.programs.calls import call, must
from tests.programs.cuda import SIZE


def get(limit: int) -> int:
    """The value of a limit."""
    size = SIZE()
    must("cuCtxGetLimit", byref(size), limit)
    return size.value


def change(limit: int, size: int) -> int:
    """Sets a limit: code."""
    return call("cuCtxSetLimit", limit, SIZE(size))
