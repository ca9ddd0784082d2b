"""Fills its line by each of the driver's own ways: `python -m tests.gpu.programs.driver [MODULE_MIB]`.

Phases: `warm` (a context, a module of that size whose kernel ran, a pool that keeps what it got), `full` (refused by
every way), `done` (all given back, and every way open again). No runtime and no torch: it runs on any driver.
"""

import ctypes
import struct
import sys
from collections.abc import Callable

from tests.gpu.programs.phases import tell, wait

MIB = 1 << 20
PIECES = (32 * MIB, 2 * MIB)
KEPT_BYTES = 128 * MIB
MOST_PIECES = 4096
OUT_OF_MEMORY = 2
RELEASE_THRESHOLD = 4  # CU_MEMPOOL_ATTR_RELEASE_THRESHOLD

PTX = b"""
.version 6.0
.target sm_50
.address_size 64
.visible .entry busy(.param .u64 duration)
{
    ret;
}
"""

cuda = ctypes.CDLL("libcuda.so.1")
Make = Callable[[ctypes.c_uint64, int], int]


def must(status: int, what: str) -> None:
    """End the program if a driver call failed."""
    if status:
        sys.exit(f"{what} answered {status}")


def size(number: int) -> ctypes.c_size_t:
    """A size as the driver's calls take it."""
    return ctypes.c_size_t(number)


def make_pitched(made: ctypes.c_uint64, asked: int) -> int:
    """Allocate rows of 4000 bytes, which the driver widens."""
    pitch = ctypes.c_size_t()
    rows = size(asked // 4096)
    return int(cuda.cuMemAllocPitch_v2(ctypes.byref(made), ctypes.byref(pitch), size(4000), rows, 4))


def make_physical(made: ctypes.c_uint64, asked: int) -> int:
    """Create physical memory of device 0 as `expandable_segments` does, from CUmemAllocationProp's layout."""
    prop = struct.pack("<IIiiQQ", 1, 0, 1, 0, 0, 0)
    return int(cuda.cuMemCreate(ctypes.byref(made), size(asked), prop, ctypes.c_ulonglong(0)))


def make_array(made: ctypes.c_uint64, asked: int) -> int:
    """Create an array with rows of 1024 floats, from CUDA_ARRAY_DESCRIPTOR's layout."""
    return int(cuda.cuArrayCreate_v2(ctypes.byref(made), struct.pack("<QQII", 1024, asked // 4096, 0x20, 1)))


def make_mipmap(made: ctypes.c_uint64, asked: int) -> int:
    """Create a mipmap of one level with rows of 1024 floats, from CUDA_ARRAY3D_DESCRIPTOR's layout."""
    sheet = struct.pack("<QQQIIII", 1024, asked // 4096, 0, 0x20, 1, 0, 0)
    return int(cuda.cuMipmappedArrayCreate(ctypes.byref(made), sheet, 1))


def make_by_graph(made: ctypes.c_uint64, asked: int) -> int:
    """Allocate in a captured graph. The driver takes the memory at the graph's launch, and it outlives the graph."""
    stream, graph, executable = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    must(cuda.cuStreamCreate(ctypes.byref(stream), 1), "cuStreamCreate")
    must(cuda.cuStreamBeginCapture_v2(stream, 2), "cuStreamBeginCapture")
    must(cuda.cuMemAllocAsync(ctypes.byref(made), size(asked), stream), "cuMemAllocAsync in a capture")
    must(cuda.cuStreamEndCapture(stream, ctypes.byref(graph)), "cuStreamEndCapture")
    flags = ctypes.c_ulonglong(0)
    must(cuda.cuGraphInstantiateWithFlags(ctypes.byref(executable), graph, flags), "cuGraphInstantiate")
    status = int(cuda.cuGraphLaunch(executable, stream))
    must(cuda.cuStreamSynchronize(stream), "cuStreamSynchronize")
    must(cuda.cuGraphExecDestroy(executable), "cuGraphExecDestroy")
    must(cuda.cuGraphDestroy(graph), "cuGraphDestroy")
    must(cuda.cuStreamDestroy_v2(stream), "cuStreamDestroy")
    return status


WAYS: dict[str, tuple[Make, Callable[[ctypes.c_uint64], int]]] = {
    "alloc": (
        lambda made, asked: int(cuda.cuMemAlloc_v2(ctypes.byref(made), size(asked))),
        cuda.cuMemFree_v2,
    ),
    "pitch": (make_pitched, cuda.cuMemFree_v2),
    "managed": (
        lambda made, asked: int(cuda.cuMemAllocManaged(ctypes.byref(made), size(asked), 1)),
        cuda.cuMemFree_v2,
    ),
    "async": (
        lambda made, asked: int(cuda.cuMemAllocAsync(ctypes.byref(made), size(asked), None)),
        lambda made: int(cuda.cuMemFreeAsync(made, None)),
    ),
    "create": (make_physical, cuda.cuMemRelease),
    "array": (make_array, cuda.cuArrayDestroy),
    "mipmap": (make_mipmap, cuda.cuMipmappedArrayDestroy),
    "graph": (make_by_graph, cuda.cuMemFree_v2),
}


class Hoard:
    """The allocated pieces, each with the way in which it was allocated."""

    def __init__(self) -> None:
        self._held: list[tuple[str, ctypes.c_uint64, int]] = []

    @property
    def held_bytes(self) -> int:
        """The sum of the requested bytes."""
        return sum(asked for _, _, asked in self._held)

    def grow(self, way: str, asked: int) -> bool:
        """Allocate one more piece; returns False if the driver reports a lack of memory."""
        made = ctypes.c_uint64()
        status = WAYS[way][0](made, asked)
        if status == OUT_OF_MEMORY:
            return False
        must(status, way)
        self._held.append((way, made, asked))
        return True

    def fill(self) -> list[str]:
        """Allocate by all ways in turn until each refuses even the smallest piece; returns the refused ways."""
        refused: list[str] = []
        for asked in PIECES:
            open_ways = list(WAYS)
            while open_ways and len(self._held) < MOST_PIECES:
                open_ways = [way for way in open_ways if self.grow(way, asked)]
            refused = sorted(WAYS.keys() - set(open_ways))
        return refused

    def give_back(self) -> None:
        """Free all pieces."""
        for way, made, _ in self._held:
            must(WAYS[way][1](made), f"giving back {way}")
        self._held.clear()
        must(cuda.cuCtxSynchronize(), "cuCtxSynchronize")
        must(cuda.cuDeviceGraphMemTrim(0), "cuDeviceGraphMemTrim")


def begin() -> None:
    """Make a primary context on the only GPU that the program sees."""
    context = ctypes.c_void_p()
    must(cuda.cuInit(0), "cuInit")
    must(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), "cuDevicePrimaryCtxRetain")
    must(cuda.cuCtxSetCurrent(context), "cuCtxSetCurrent")


def load(module_mib: int) -> Callable[[], None]:
    """Load an image of this size, mostly comment; returns a function that launches its kernel and waits for it."""
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    image = PTX + b"//" + b"x" * (module_mib * MIB) + b"\n"
    must(cuda.cuModuleLoadData(ctypes.byref(module), image), "cuModuleLoadData")
    must(cuda.cuModuleGetFunction(ctypes.byref(function), module, b"busy"), "cuModuleGetFunction")

    def launch() -> None:
        duration_ns = ctypes.c_uint64(1000)
        parameters = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(duration_ns), ctypes.c_void_p))
        must(cuda.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, parameters, None), "cuLaunchKernel")
        must(cuda.cuCtxSynchronize(), "cuCtxSynchronize")

    return launch


def keep_in_pool() -> None:
    """Make the default pool keep memory that is freed, as JAX and `cudaMallocAsync` users do."""
    pool, made = ctypes.c_void_p(), ctypes.c_uint64()
    must(cuda.cuDeviceGetDefaultMemPool(ctypes.byref(pool), 0), "cuDeviceGetDefaultMemPool")
    everything = ctypes.c_uint64((1 << 64) - 1)
    must(
        cuda.cuMemPoolSetAttribute(pool, RELEASE_THRESHOLD, ctypes.byref(everything)), "cuMemPoolSetAttribute"
    )
    must(cuda.cuMemAllocAsync(ctypes.byref(made), size(KEPT_BYTES), None), "cuMemAllocAsync")
    must(cuda.cuMemFreeAsync(made, None), "cuMemFreeAsync")
    must(cuda.cuCtxSynchronize(), "cuCtxSynchronize")


def main() -> None:
    """Go through the three phases."""
    begin()
    launch = load(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    launch()
    keep_in_pool()
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    must(cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)), "cuMemGetInfo")
    tell("warm", total_bytes=total.value, free_bytes=free.value)
    wait()
    hoard = Hoard()
    refused = hoard.fill()
    tell("full", held_bytes=hoard.held_bytes, refused=refused)
    wait()
    hoard.give_back()
    opened = [way for way in WAYS if hoard.grow(way, 2 * MIB)]
    launch()
    tell("done", opened=sorted(opened))


main()
