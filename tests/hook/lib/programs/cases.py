"""A call of every function that puts work on the GPU, and of every function that waits for it.

`launches` is a table of name → function of a stream → arguments, and `syncs` one of name → arguments. Each launch
is worth about two milliseconds on the node of `slow_node`. Functions for addresses of 32 bits get memory there.
"""
# ruff: noqa: ARG005 - not every launch has a stream among its parameters

import ctypes
import mmap
import os
from collections.abc import Callable
from ctypes import addressof, byref
from pathlib import Path
from typing import Any

from tests.hook.lib.programs.calls import alloc, call, make, must
from tests.programs.cuda import INT, MIB, PTR, SHAPE, SIZE, U64, UINT, cuda, parameters
from tests.programs.structures import (
    Access,
    Attributes,
    Box,
    Config,
    Corner,
    Flat,
    FlatForm,
    HandleProps,
    Launch,
    Location,
    Operand,
    Operation,
    Place,
    Side,
)

BYTES = 1 << 16


class OldFlat(ctypes.Structure):
    """CUDA_MEMCPY2D_v1: both sides in one, as no padding stands between them."""

    _fields_ = [
        (side + name, kind)
        for side in ("source_", "target_")
        for name, kind in (
            ("x", UINT),
            ("y", UINT),
            ("type", INT),
            ("host", PTR),
            ("device", UINT),
            ("array", PTR),
            ("pitch", UINT),
        )
    ] + [("width", UINT), ("height", UINT)]


class OldCorner(ctypes.Structure):
    """The source or the target of a CUDA_MEMCPY3D_v1."""

    _fields_ = [
        ("x", UINT),
        ("y", UINT),
        ("z", UINT),
        ("level", UINT),
        ("type", INT),
        ("host", PTR),
        ("device", UINT),
        ("array", PTR),
        ("context", PTR),
        ("pitch", UINT),
        ("height", UINT),
    ]


class OldBox(ctypes.Structure):
    """CUDA_MEMCPY3D_v1."""

    _fields_ = [
        ("source", OldCorner),
        ("target", OldCorner),
        ("width", UINT),
        ("height", UINT),
        ("depth", UINT),
    ]


class Packed(ctypes.Structure):
    """CUmemDecompressParams."""

    _fields_ = [
        ("source_bytes", SIZE),
        ("target_bytes", SIZE),
        ("written", PTR),
        ("source", U64),
        ("target", U64),
        ("method", INT),
        ("padding", ctypes.c_ubyte * 20),
    ]


class End(ctypes.Structure):
    """The source or the target of a copy over the fabric."""

    _fields_ = [("type", INT), ("address", U64), ("hint", Location)]


class Fabric(ctypes.Structure):
    """A copy over the fabric."""

    _fields_ = [("source", End), ("target", End), ("size", SIZE), ("flags", UINT)]


def low_memory(size: int) -> int:
    """Memory where addresses fit into 32 bits."""
    address, handle = U64(), U64()
    # The kernel puts the heap of a program at a fixed address anywhere in the GiB behind it, so this is far above.
    must("cuMemAddressReserve", byref(address), SIZE(size), SIZE(0), U64(0x90000000), U64(0))
    must("cuMemCreate", byref(handle), SIZE(size), byref(HandleProps(1, 0, Location(1, 0))), U64(0))
    must("cuMemMap", address, SIZE(size), SIZE(0), handle, U64(0))
    must("cuMemSetAccess", address, SIZE(size), byref(Access(Location(1, 0), 3)), SIZE(1))
    assert address.value < 1 << 32
    return address.value


def length(ns: int) -> Any:  # noqa: ANN401 - an array of ctypes
    """Kernel parameters: how long it runs. They are kept, as only their addresses are handed over."""
    kept.append(parameters(ns))
    return kept[-1]


kept: list[Any] = []
here = U64()
must("cuCtxGetCurrent", byref(here))
busy = cuda.kernel()
stream = make("cuStreamCreate", 1)
_, one = alloc(BYTES)
_, other = alloc(BYTES)
low = low_memory(2 * MIB)
arrays = [make("cuArrayCreate_v2", byref(FlatForm(BYTES // 16, 1, 0x20, 4))) for _ in range(2)]
host = (ctypes.c_ubyte * 4)()
TWO_MS = length(2_000_000)

launches: dict[str, Callable[..., tuple[Any, ...]]] = {}
for bits, kind in ((8, ctypes.c_ubyte), (16, ctypes.c_ushort), (32, UINT)):
    count, width, value = BYTES * 8 // bits, 4096 * 8 // bits, kind(1)
    line, rows = (
        (U64(one), value, SIZE(count)),
        (U64(one), SIZE(4096), value, SIZE(width), SIZE(BYTES // 4096)),
    )
    launches[f"cuMemsetD{bits}"] = lambda s, v=value, n=count: (UINT(low), v, UINT(n))
    launches[f"cuMemsetD2D{bits}"] = lambda s, v=value, w=width: (
        UINT(low),
        UINT(4096),
        v,
        UINT(w),
        UINT(BYTES // 4096),
    )
    for form in ("_v2", "_v2_ptds"):
        launches[f"cuMemsetD{bits}{form}"] = lambda s, line=line: line
        launches[f"cuMemsetD2D{bits}{form}"] = lambda s, rows=rows: rows
    for form in ("Async", "Async_ptsz"):
        launches[f"cuMemsetD{bits}{form}"] = lambda s, line=line: (*line, s)
        launches[f"cuMemsetD2D{bits}{form}"] = lambda s, rows=rows: (*rows, s)

size, old = SIZE(BYTES), (UINT(low), UINT(low + BYTES), UINT(BYTES))
flat = Flat(Side(type=2, device=one, pitch=4096), Side(type=4, device=other, pitch=4096), 4096, BYTES // 4096)
box = Box(
    Corner(type=2, device=one, context=here.value, pitch=4096),
    Corner(type=2, device=other, context=here.value, pitch=4096),
    4096,
    BYTES // 4096,
    1,
)
old_flat = OldFlat(
    source_type=2,
    source_device=low,
    source_pitch=4096,
    target_type=2,
    target_device=low + BYTES,
    target_pitch=4096,
    width=4096,
    height=BYTES // 4096,
)
old_box = OldBox(
    OldCorner(type=2, device=low, pitch=4096),
    OldCorner(type=2, device=low + BYTES, pitch=4096),
    4096,
    BYTES // 4096,
    1,
)
attributes = Attributes(1)
first = (SIZE * 1)(0)
batch = ((U64 * 1)(one), (U64 * 1)(other), (SIZE * 1)(BYTES), SIZE(1), byref(attributes), first, SIZE(1))
operation = Operation(Operand(1, Place(one)), Operand(1, Place(other)), BYTES, 1, 1, 1, 0)
written, packed_failed = UINT(), SIZE()
packed = Packed(BYTES, BYTES, ctypes.addressof(written), one, other, 1)
fabric = Fabric(End(1, one), End(1, other), BYTES, 0)
zero = U64(0)
launches |= {
    "cuMemcpyDtoD": lambda s: old,
    "cuMemcpyDtoDAsync": lambda s: (*old, s),
    "cuMemcpyDtoA": lambda s: (arrays[0], UINT(0), UINT(low), UINT(BYTES)),
    "cuMemcpyAtoD": lambda s: (UINT(low), arrays[0], UINT(0), UINT(BYTES)),
    "cuMemcpyAtoA": lambda s: (arrays[0], UINT(0), arrays[1], UINT(0), UINT(BYTES)),
    "cuMemcpy2D": lambda s: (byref(old_flat),),
    "cuMemcpy2DUnaligned": lambda s: (byref(old_flat),),
    "cuMemcpy2DAsync": lambda s: (byref(old_flat), s),
    "cuMemcpy3D": lambda s: (byref(old_box),),
    "cuMemcpy3DAsync": lambda s: (byref(old_box), s),
}
for form in ("", "_ptds"):
    launches |= {
        f"cuMemcpy{form}": lambda s: (U64(one), U64(other), size),
        f"cuMemcpyDtoD_v2{form}": lambda s: (U64(one), U64(other), size),
        f"cuMemcpyDtoA_v2{form}": lambda s: (arrays[0], SIZE(0), U64(one), size),
        f"cuMemcpyAtoD_v2{form}": lambda s: (U64(one), arrays[0], SIZE(0), size),
        f"cuMemcpyAtoA_v2{form}": lambda s: (arrays[0], SIZE(0), arrays[1], SIZE(0), size),
        f"cuMemcpyPeer{form}": lambda s: (U64(one), here, U64(other), here, size),
        f"cuMemcpy2D_v2{form}": lambda s: (byref(flat),),
        f"cuMemcpy2DUnaligned_v2{form}": lambda s: (byref(flat),),
        f"cuMemcpy3D_v2{form}": lambda s: (byref(box),),
        f"cuMemcpy3DPeer{form}": lambda s: (byref(box),),
    }
must("cuStreamBeginCapture_v2", stream, 2)
for _ in range(2):
    must("cuLaunchKernel", busy, 1, 1, 1, 1, 1, 1, 0, stream, length(1_000_000), None)
drawn = U64()
must("cuStreamEndCapture", stream, byref(drawn))
graph = make("cuGraphInstantiateWithFlags", drawn, U64(0))
for form in ("", "_ptsz"):
    launches |= {
        f"cuMemcpyAsync{form}": lambda s: (U64(one), U64(other), size, s),
        f"cuMemcpyDtoDAsync_v2{form}": lambda s: (U64(one), U64(other), size, s),
        f"cuMemcpyPeerAsync{form}": lambda s: (U64(one), here, U64(other), here, size, s),
        f"cuMemcpy2DAsync_v2{form}": lambda s: (byref(flat), s),
        f"cuMemcpy3DAsync_v2{form}": lambda s: (byref(box), s),
        f"cuMemcpy3DPeerAsync{form}": lambda s: (byref(box), s),
        f"cuMemcpyBatchAsync{form}": lambda s: (*batch, None, s),
        f"cuMemcpyBatchAsync_v2{form}": lambda s: (*batch, s),
        f"cuMemcpy3DBatchAsync{form}": lambda s: (SIZE(1), byref(operation), None, zero, s),
        f"cuMemcpy3DBatchAsync_v2{form}": lambda s: (SIZE(1), byref(operation), zero, s),
        f"cuMemcpyWithAttributesAsync{form}": lambda s: (U64(one), U64(other), size, byref(attributes), s),
        f"cuMemcpy3DWithAttributesAsync{form}": lambda s: (byref(operation), zero, s),
        f"cuMemBatchDecompressAsync{form}": lambda s: (byref(packed), SIZE(1), 0, byref(packed_failed), s),
        f"cuFabricCpyBatchAsync{form}": lambda s: (SIZE(1), byref(fabric), zero, s),
        f"cuLaunchKernel{form}": lambda s: (busy, 1, 1, 1, 1, 1, 1, 0, s, TWO_MS, None),
        f"cuLaunchKernelEx{form}": lambda s: (byref(Config(SHAPE, 0, s)), busy, TWO_MS, None),
        f"cuLaunchCooperativeKernel{form}": lambda s: (busy, 1, 1, 1, 1, 1, 1, 0, s, TWO_MS),
        f"cuGraphLaunch{form}": lambda s: (graph, s),
    }
must("cuFuncSetBlockShape", busy, 1, 1, 1)
must("cuParamSetv", busy, 0, byref(U64(2_000_000)), 8)
must("cuParamSetSize", busy, 8)
launches |= {
    "cuLaunchCooperativeKernelMultiDevice": lambda s: (
        byref(Launch(busy, SHAPE, 0, s, addressof(TWO_MS))),
        1,
        0,
    ),
    "cuLaunch": lambda s: (busy,),
    "cuLaunchGrid": lambda s: (busy, 1, 1),
    "cuLaunchGridAsync": lambda s: (busy, 1, 1, s),
}

BY_LEGACY = {"cuLaunch", "cuLaunchGrid"}
NEVER_LEGACY = {"cuLaunchCooperativeKernelMultiDevice", "cuFabricCpyBatchAsync"} | {
    name for name in launches if "Batch" in name or "WithAttributes" in name
}


def takes_stream(name: str) -> bool:
    """Whether a launch has a stream among its parameters."""
    return any(part in name for part in ("Async", "Launch")) and name not in BY_LEGACY


def streams_of(name: str) -> list[str]:
    """The streams for a launch: none where it takes none; the default one where it may, and one of our own."""
    if not takes_stream(name):
        return ["none"]
    may_default = name not in NEVER_LEGACY or (name.endswith("_ptsz") and "Multi" not in name)
    return ["default", "own"] if may_default else ["own"]


def launch(name: str, which: str) -> int:
    """Makes a launch in a stream: code."""
    must("cuCtxSetCurrent", here)  # whichever thread comes by
    return call(name, *launches[name](stream if which == "own" else None))


event = make("cuEventCreate", 0)
syncs: dict[str, tuple[Any, ...]] = {
    "cuMemcpyHtoD": (UINT(low), host, UINT(4)),
    "cuMemcpyDtoH": (host, UINT(low), UINT(4)),
    "cuMemcpyHtoA": (arrays[0], UINT(0), host, UINT(4)),
    "cuMemcpyAtoH": (host, arrays[0], UINT(0), UINT(4)),
    "cuEventSynchronize": (event,),
    "cuEventQuery": (event,),
    "cuCtxSynchronize": (),
    "cuCtxSynchronize_v2": (here,),
}
for form in ("", "_ptds"):
    syncs |= {
        f"cuMemcpyHtoD_v2{form}": (U64(one), host, SIZE(4)),
        f"cuMemcpyDtoH_v2{form}": (host, U64(one), SIZE(4)),
        f"cuMemcpyHtoA_v2{form}": (arrays[0], SIZE(0), host, SIZE(4)),
        f"cuMemcpyAtoH_v2{form}": (host, arrays[0], SIZE(0), SIZE(4)),
    }
for form in ("", "_ptsz"):
    syncs |= {f"cuStreamSynchronize{form}": (None,), f"cuStreamQuery{form}": (None,)}


def word_of_counts(offset: int) -> ctypes.c_uint64:
    """A word of `counts`, as it is now."""
    with (Path(os.environ["PLIMSOLL_COUNTS_DIR"]) / "counts").open("r+b") as file:
        return U64.from_buffer(mmap.mmap(file.fileno(), 0), offset)


def wait_by(name: str) -> None:
    """Launches in the default stream that the function means, and waits or asks until the work is done."""
    form = "_ptsz" if name.endswith(("_ptds", "_ptsz")) else ""
    must(f"cuLaunchKernel{form}", busy, 1, 1, 1, 1, 1, 1, 0, None, TWO_MS, None)
    if "Event" in name:
        must("cuEventRecord", event, None)
    while (code := call(name, *syncs[name])) == 600:
        pass
    assert code == 0, f"{name}: {code}"
