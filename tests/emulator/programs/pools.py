"""Memory pools: trimmed, bounded, and what they keep."""

import ctypes
from ctypes import byref

from tests.programs.cuda import MIB, PTR, SIZE, U64, cuda


def trim() -> object:
    cuda.context()
    pool, address, full = PTR(), [U64(), U64()], cuda.info()[0]
    props = (U64 * 11)(1, 1, 0, 128 * MIB)
    cuda.cuMemPoolCreate(byref(pool), (ctypes.c_ubyte * 88).from_buffer(props))
    cuda.cuMemPoolSetAttribute(pool, 4, byref(U64(1 << 40)))
    for one in address:
        cuda.cuMemAllocFromPoolAsync(byref(one), SIZE(60 * MIB), pool, None)
    more = cuda.result("cuMemAllocFromPoolAsync", byref(U64()), SIZE(9 * MIB), pool, None)
    for one in address:
        cuda.cuMemFreeAsync(one, None)

    def held(keep: int) -> int:
        cuda.cuMemPoolTrimTo(pool, SIZE(keep))
        return (full - cuda.info()[0]) // MIB

    cuda.cuCtxSynchronize()
    seen = [held(1 << 40), held(50 * MIB), held(64 * MIB)]
    cuda.cuMemAllocFromPoolAsync(byref(address[0]), SIZE(9 * MIB), pool, None)
    seen.append(held(0))
    cuda.cuMemPoolDestroy(pool)
    seen.append((full - cuda.info()[0]) // MIB)
    cuda.cuMemFreeAsync(address[0], None)
    seen.append((full - cuda.info()[0]) // MIB)
    return [more, seen]


def threshold() -> object:
    cuda.context()
    pool = cuda.make("cuDeviceGetDefaultMemPool", 0)

    def read(attribute: int) -> int:
        value = U64()
        cuda.cuMemPoolGetAttribute(pool, attribute, byref(value))
        return value.value

    def use(threshold: int) -> list[int]:
        cuda.cuMemPoolSetAttribute(pool, 4, byref(U64(threshold)))
        address = U64()
        cuda.cuMemAllocAsync(byref(address), SIZE(100 * MIB), None)
        held = [read(5), read(7)]
        cuda.cuMemFreeAsync(address, None)
        before = [read(5), read(7)]
        cuda.cuCtxSynchronize()
        return [*held, *before, read(5), read(7)]

    free = cuda.info()[0]
    return [use(0), use(1 << 40), read(6), read(8), free - cuda.info()[0]]
