"""Green contexts."""

from ctypes import byref, c_void_p

from tests.hook.lib.programs.calls import alloc, call, make, must, sync
from tests.programs.cuda import MIB, SIZE, U64, UINT
from tests.programs.structures import Resource


def green_on(device: int) -> tuple[int, c_void_p]:
    """A green context of some multiprocessors: code and handle."""
    whole, count, part = Resource(), UINT(1), (Resource * 1)()
    must("cuDeviceGetDevResource", device, byref(whole), 1)
    must("cuDevSmResourceSplitByCount", part, byref(count), byref(whole), None, 0, 8)
    plan, green = make("cuDevResourceGenerateDesc", part, 1), c_void_p()
    return call("cuGreenCtxCreate", byref(green), plan, device, 1), green


def enter(green: c_void_p) -> None:
    """Makes a green context current."""
    must("cuCtxSetCurrent", make("cuCtxFromGreenCtx", green))


def fill_often(times: int) -> None:
    """Fills memory and waits for each fill by an event, in a green context of its own."""
    _, green = green_on(0)
    enter(green)
    mine, done, address = make("cuGreenCtxStreamCreate", green, 1, 0), make("cuEventCreate", 0), alloc(MIB)[1]
    for _ in range(times):
        must("cuMemsetD8Async", U64(address), 0, SIZE(MIB), mine)
        must("cuEventRecord", done, mine)
        must("cuEventSynchronize", done)
    sync()
