"""Arrays that get their memory after they were made."""

from ctypes import byref, c_void_p

from tests.hook.lib.programs.calls import call, make
from tests.programs.cuda import U64
from tests.programs.sharing import create, release
from tests.programs.structures import Form, MapInfo

SPARSE, DEFERRED, MAP, UNMAP = 0x40, 0x80, 1, 2


def array(flags: int) -> c_void_p:
    """An array of 16 MiB."""
    return make("cuArray3DCreate_v2", byref(Form(1024, 4096, 0, 0x20, 1, flags)))


def place(resource: c_void_p, handle: int | None = 0, operation: int = MAP, offset: int = 0) -> MapInfo:
    """A place in an array, to map something into or to unmap."""
    where = (U64 * 4)(0, offset, 0, 1)
    return MapInfo(0, resource.value, 0, where, operation, 0, handle or 0, 0, 1)


def put(*places: MapInfo, function: str = "cuMemMapArrayAsync") -> int:
    """Maps and unmaps: code."""
    return call(function, (MapInfo * len(places))(*places), len(places), None)


def fill(where: c_void_p, size: int, usage: int, function: str) -> int:
    """Maps new memory, whose handle is released: code."""
    handle = create(size, 0, usage)
    code = put(place(where, handle.value), function=function)
    release(handle)
    return code
