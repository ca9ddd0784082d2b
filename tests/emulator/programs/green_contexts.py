"""Green contexts on parts of a GPU's multiprocessors."""

from ctypes import byref, c_void_p

from tests.programs.cuda import MIB, PTR, UINT, cuda
from tests.programs.structures import Resource

cuda.cuInit(0)


def split(whole: Resource, count: int, groups: int) -> tuple[list[Resource], Resource]:
    made, number, rest = (Resource * groups)(), UINT(groups), Resource()
    cuda.cuDevSmResourceSplitByCount(made, byref(number), byref(whole), byref(rest), 0, count)
    return list(made)[: number.value], rest


def describe(*resources: Resource) -> c_void_p:
    return cuda.make("cuDevResourceGenerateDesc", (Resource * len(resources))(*resources), len(resources))


whole = Resource()
cuda.cuDeviceGetDevResource(0, byref(whole), 1)


def equal_parts() -> object:
    parts, rest = split(whole, 15, 8)
    few, left = split(whole, 15, 2)
    number, kind = UINT(), Resource()
    cuda.cuDevSmResourceSplitByCount(None, byref(number), byref(whole), None, 0, 2)
    return [
        whole.sms,
        [part.sms for part in parts],
        rest.sms,
        len(few),
        left.sms,
        number.value,
        cuda.result("cuDevSmResourceSplitByCount", None, byref(number), byref(whole), None, 0, 59),
        cuda.result("cuDevSmResourceSplitByCount", None, byref(number), byref(kind), None, 0, 0),
        cuda.result("cuDeviceGetDevResource", 9, byref(whole), 1),
        cuda.result("cuDeviceGetDevResource", 0, byref(whole), 7),
    ]


def cost() -> object:
    parts, _ = split(whole, 15, 8)
    cuda.context()
    full = cuda.info()[0]

    def held() -> int:
        return (full - cuda.info()[0]) // MIB

    green = [cuda.make("cuGreenCtxCreate", describe(part), 0, 1) for part in parts[:2]]
    seen: list[object] = [held()]
    context, which, back = cuda.make("cuCtxFromGreenCtx", green[0]), PTR(), PTR()
    cuda.cuCtxSetCurrent(context)
    address = cuda.alloc(64 * MIB)
    kernel = cuda.kernel()
    stream = cuda.make("cuGreenCtxStreamCreate", green[0], 1, 0)
    cuda.busy(kernel, 5, stream)
    cuda.cuStreamSynchronize(stream)
    cuda.cuStreamGetCtx_v2(stream, byref(back), byref(which))
    got = Resource()
    cuda.cuGreenCtxGetDevResource(green[0], byref(got), 1)
    seen += [
        held(),
        which.value == green[0].value,
        back.value,
        got.sms,
        cuda.result("cuCtxDestroy_v2", context),
        cuda.result("cuGreenCtxStreamCreate", byref(PTR()), green[0], 0, 0),
        cuda.result("cuGreenCtxCreate", byref(PTR()), describe(parts[0]), 0, 0),
        cuda.result("cuGreenCtxCreate", byref(PTR()), describe(parts[0]), 1, 1),
    ]
    cuda.cuDevicePrimaryCtxRelease_v2(0)
    cuda.cuCtxSetCurrent(cuda.make("cuCtxFromGreenCtx", green[1]))
    cuda.cuGreenCtxDestroy(green[0])
    seen += [held(), cuda.result("cuMemFree_v2", address), held(), cuda.result("cuGreenCtxDestroy", green[0])]
    cuda.cuGreenCtxDestroy(green[1])
    cuda.make("cuCtxCreate_v2", 0, 0)
    return [*seen, cuda.info()[0] - full]
