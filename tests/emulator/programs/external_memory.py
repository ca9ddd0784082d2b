"""External memory by descriptor, and arrays that get their memory after they were made."""

import ctypes
from ctypes import byref, c_void_p
from pathlib import Path

from tests.programs.cuda import MIB, PTR, SIZE, U64, cuda
from tests.programs.sharing import create, export
from tests.programs.structures import Buffer, External, Form, Levels, MapInfo


def bring(fd: int, size: int, kind: int = 1) -> External:
    return External(kind, fd, None, size)


cuda.context()
full = cuda.info()[0]


def held() -> int:
    return (full - cuda.info()[0]) // MIB


def mapped_buffer() -> object:
    handle = create(64 * MIB)
    fd = export(handle)
    memory = cuda.make("cuImportExternalMemory", byref(bring(fd, 64 * MIB)))
    buffer, same, back = U64(), U64(), (ctypes.c_ubyte * 1)()
    cuda.cuExternalMemoryGetMappedBuffer(byref(buffer), memory, byref(Buffer(MIB, 2 * MIB)))
    cuda.cuExternalMemoryGetMappedBuffer(byref(same), memory, byref(Buffer(2 * MIB, MIB)))
    cuda.cuMemsetD8_v2(buffer, 8, SIZE(2 * MIB))
    cuda.cuMemcpyDtoH_v2(back, same, SIZE(1))
    past = cuda.result(
        "cuExternalMemoryGetMappedBuffer", byref(U64()), memory, byref(Buffer(63 * MIB, 2 * MIB))
    )
    seen = [back[0], past, held(), Path(f"/proc/self/fd/{fd}").exists()]
    cuda.cuMemRelease(handle)
    cuda.cuDestroyExternalMemory(memory)
    cuda.cuMemFree_v2(same)
    seen.append(held())
    cuda.cuMemFree_v2(buffer)
    return [*seen, held()]


def mipmapped_array() -> object:
    handle = create(16 * MIB)
    memory = cuda.make("cuImportExternalMemory", byref(bring(export(handle), 16 * MIB)))
    form = Form(1024, 1024, 0, 0x20, 1)
    mipmap = cuda.make("cuExternalMemoryGetMappedMipmappedArray", memory, byref(Levels(0, form, 3)))
    large = cuda.result(
        "cuExternalMemoryGetMappedMipmappedArray",
        byref(PTR()),
        memory,
        byref(Levels(0, Form(4096, 4096, 0, 0x20, 1), 1)),
    )
    cuda.cuMemRelease(handle)
    cuda.cuDestroyExternalMemory(memory)
    level = PTR()
    cuda.cuMipmappedArrayGetLevel(byref(level), mipmap, 2)
    seen = [large, held()]
    cuda.cuMipmappedArrayDestroy(mipmap)
    return [*seen, held()]


def refusals() -> object:
    fd = export(create(2 * MIB))
    tries = [bring(0, MIB), bring(fd, MIB, 9), bring(fd, 3 * MIB), bring(fd, 0)]
    return [
        *[cuda.result("cuImportExternalMemory", byref(PTR()), byref(one)) for one in tries],
        Path(f"/proc/self/fd/{fd}").exists(),
    ]


def sparse_and_deferred() -> object:
    def array(flags: int) -> c_void_p:
        return cuda.make("cuArray3DCreate_v2", byref(Form(4096, 4096, 0, 0x20, 1, flags)))

    def element(array: c_void_p, handle: c_void_p | None, where: int = 0, operation: int = 1) -> MapInfo:
        number = handle.value or 0 if handle else 0
        return MapInfo(0, array, 0, (U64 * 4)(0, where), operation, 0, number, 0, 1)

    sparse, deferred, plain = (
        array(0x40),
        array(0x80),
        cuda.make("cuArray3DCreate_v2", byref(Form(64, 64, 0, 0x20, 1))),
    )
    seen: list[object] = [held()]
    tiles, whole = create(2 * MIB, usage=1), create(64 * MIB)

    def go(*elements: MapInfo) -> str:
        return cuda.result("cuMemMapArrayAsync", (MapInfo * len(elements))(*elements), len(elements), None)

    seen += [go(element(sparse, whole)), go(element(plain, tiles))]
    seen += [go(element(sparse, tiles), element(deferred, whole)), held()]
    cuda.cuMemRelease(tiles)
    cuda.cuMemRelease(whole)
    seen.append(held())
    seen += [go(element(sparse, None, 1, 2)), held(), go(element(sparse, None, 0, 2)), held()]
    cuda.cuArrayDestroy(deferred)
    seen.append(held())
    again = create(64 * MIB)
    go(element(array(0x80), again))
    cuda.cuMemRelease(again)
    cuda.cuDevicePrimaryCtxReset_v2(0)
    cuda.context()
    return [*seen, held()]
