"""The memory that contexts cost, and the ways in which they end."""

from ctypes import byref

from tests.programs.cuda import MIB, PTR, SIZE, cuda

PRINTF, HEAP = 1, 2


def cost() -> object:
    cuda.cuInit(0)
    primary, made = PTR(), PTR()
    seen = []
    cuda.cuCtxCreate_v2(byref(made), 0, 0)
    seen.append(cuda.info()[0])
    cuda.cuDevicePrimaryCtxRetain(byref(primary), 0)
    seen.append(cuda.info()[0])
    cuda.cuDevicePrimaryCtxRetain(byref(primary), 0)
    seen.append(cuda.info()[0])
    cuda.cuDevicePrimaryCtxRelease_v2(0)
    seen.append(cuda.info()[0])
    cuda.cuDevicePrimaryCtxRelease_v2(0)
    seen.append(cuda.info()[0])
    return seen


def heap_and_printf() -> object:
    def limit(which: int) -> int:
        value = SIZE()
        cuda.cuCtxGetLimit(byref(value), which)
        return value.value

    cuda.context()
    start = cuda.info()[0]

    def used() -> int:
        return (start - cuda.info()[0]) // MIB

    seen: list[object] = [limit(HEAP) // MIB, limit(PRINTF) // MIB]

    def put(which: int, mib: int) -> None:
        result = cuda.result("cuCtxSetLimit", which, SIZE(mib * MIB))
        seen.append([result, limit(which) // MIB, used()])

    put(HEAP, 4)
    put(HEAP, 108)
    put(PRINTF, 51)
    put(HEAP, 9000)
    put(HEAP, 58)
    put(PRINTF, 1)
    cuda.cuCtxSetLimit(0, SIZE(64 * MIB))
    seen.append(used())
    cuda.cuDevicePrimaryCtxReset_v2(0)
    cuda.context()
    seen += [used(), limit(HEAP) // MIB]
    return seen


def detach() -> object:
    cuda.cuInit(0)
    made, same = PTR(), PTR()
    other = cuda.make("cuCtxCreate_v2", 0, 0)
    full = cuda.info()[0]
    cuda.cuCtxCreate_v2(byref(made), 0, 0)
    cuda.cuCtxAttach(byref(same), 0)
    seen = [
        same.value == made.value,
        cuda.result("cuCtxAttach", byref(same), 1),
        cuda.result("cuCtxDetach", other),
        full - cuda.info()[0],
    ]
    cuda.cuCtxDetach(made)
    seen.append(full - cuda.info()[0])
    cuda.cuCtxDetach(made)
    seen.append(full - cuda.info()[0])
    primary = cuda.context()
    return [*seen, cuda.result("cuCtxDetach", primary)]
