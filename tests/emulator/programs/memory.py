"""Device memory: allocated, freed, mapped, reserved."""

import ctypes
from ctypes import byref

from tests.programs.cuda import GIB, MIB, SIZE, U64, UINT, cuda, show
from tests.programs.structures import Access, HandleProps, Location


def churn() -> None:
    cuda.context()
    show(1)
    while True:
        cuda.cuMemFree_v2(cuda.alloc(64 * MIB))


def hold(size: int) -> None:
    cuda.context()
    cuda.alloc(size)
    show(1)
    input()


def allocate_when_told(size: int) -> object:
    cuda.context()
    show(1)
    input()
    return cuda.result("cuMemAlloc_v2", byref(U64()), SIZE(size))


def rise_and_fall() -> None:
    cuda.context()
    cuda.cuMemFree_v2(cuda.alloc(3 * GIB))
    cuda.alloc(GIB)
    show(1)
    input()
    cuda.alloc(GIB)
    show(2)
    input()


def small_allocations() -> object:
    cuda.context()
    before = cuda.info()[0]
    pieces = [cuda.alloc(4096) for _ in range(1024)]
    spent = before - cuda.info()[0]
    for one in pieces:
        cuda.cuMemFree_v2(one)
    return [spent, before - cuda.info()[0]]


def contents() -> object:
    cuda.context()
    one, other = cuda.alloc(3 * MIB), cuda.alloc(3 * MIB)
    source = ctypes.create_string_buffer(bytes(range(256)) * 1024, 262144)
    target = ctypes.create_string_buffer(262144)
    cuda.cuMemsetD8_v2(one, 7, SIZE(3 * MIB))
    cuda.cuMemcpyHtoD_v2(U64(one.value + MIB), source, SIZE(262144))
    cuda.cuMemcpyDtoD_v2(other, one, SIZE(3 * MIB))
    cuda.cuMemcpyDtoH_v2(target, U64(other.value + MIB), SIZE(262144))
    good = target.raw == source.raw
    cuda.cuMemcpyDtoH_v2(target, other, SIZE(4))
    return [good, target.raw[:4] == b"\x07" * 4]


def second_gpu() -> object:
    cuda.context(1)
    return cuda.info()


def mapped() -> object:
    cuda.context()
    props = HandleProps(type=1, location=Location(1, 0))
    granule, handle, address = SIZE(), U64(), U64()
    cuda.cuMemGetAllocationGranularity(byref(granule), byref(props), 0)
    full = cuda.info()[0]

    def spent() -> int:
        return full - cuda.info()[0]

    cuda.cuMemCreate(byref(handle), SIZE(8 * MIB), byref(props), U64(0))
    seen = [granule.value, spent()]
    cuda.cuMemAddressReserve(byref(address), SIZE(16 * MIB), SIZE(0), U64(0), U64(0))
    cuda.cuMemMap(address, SIZE(8 * MIB), SIZE(0), handle, U64(0))
    again = U64(address.value + 8 * MIB)
    cuda.cuMemMap(again, SIZE(8 * MIB), SIZE(0), handle, U64(0))
    cuda.cuMemSetAccess(address, SIZE(16 * MIB), byref(Access(Location(1, 0), 3)), SIZE(1))
    cuda.cuMemsetD32_v2(address, 77, SIZE(10))
    value = UINT()
    cuda.cuMemcpyDtoH_v2(byref(value), U64(again.value + 36), SIZE(4))
    cuda.cuMemRelease(handle)
    seen += [value.value, spent()]
    cuda.cuMemUnmap(address, SIZE(16 * MIB))
    cuda.cuMemAddressFree(address, SIZE(16 * MIB))
    odd = cuda.result("cuMemCreate", byref(handle), SIZE(MIB), byref(props), U64(0))
    return [*seen, spent(), odd]


def absurd_range() -> object:
    cuda.context()
    size, address = 2**64 - 2 * MIB, U64()
    return [
        cuda.result("cuMemAddressReserve", byref(address), SIZE(size), SIZE(alignment), U64(0), U64(0))
        for alignment in (0, 4 * MIB, GIB)
    ]


def wished_address() -> object:
    cuda.context()
    wish, address, other = U64(0x40000000), U64(), U64()
    cuda.cuMemAddressReserve(byref(address), SIZE(4 * MIB), SIZE(0), wish, U64(0))
    cuda.cuMemAddressReserve(byref(other), SIZE(4 * MIB), SIZE(0), wish, U64(0))
    return [address.value, other.value in (0, wish.value)]
