"""Contexts that come and go by ways that no hook sees."""

from ctypes import byref

from tests.hook.lib.programs.calls import call, make, must
from tests.programs.cuda import U64
from tests.programs.structures import FlatForm


def enter(how: str = "plimsoll_emulator_private_retain", device: int = 1) -> None:
    """Makes a context that no hook saw current."""
    must("cuCtxSetCurrent", make(how, device))


def end_unseen(device: int = 1) -> None:
    """Resets a primary context."""
    must("plimsoll_emulator_private_reset", device)


def begin_anew() -> None:
    """Resets the primary context, and makes the next one current."""
    end_unseen()
    enter()


def array(mib: int) -> tuple[int, int]:
    """An array: code and handle."""
    made = U64()
    return call("cuArrayCreate_v2", byref(made), byref(FlatForm(1024, mib * 256, 0x20, 1))), made.value
