"""Green contexts: parts of a GPU's multiprocessors, and their cost."""

from tests.emulator.cuda_program import CONTEXT_BYTES, MIB, Node

PROGRAM = """
class Resource(ctypes.Structure):
    _fields_ = [("type", INT), ("device", INT), ("padding", ctypes.c_ubyte * 88), ("sms", UINT),
                ("rest", ctypes.c_ubyte * 44)]
cuda.cuInit(0)
def split(whole, count, groups, flags=0):
    made, number, rest = (Resource * groups)(), UINT(groups), Resource()
    cuda.cuDevSmResourceSplitByCount(made, byref(number), byref(whole), byref(rest), flags, count)
    return list(made)[:number.value], rest
def describe(*resources):
    return cuda.make("cuDevResourceGenerateDesc", (Resource * len(resources))(*resources), len(resources))
whole = Resource()
cuda.cuDeviceGetDevResource(0, byref(whole), 1)
"""


def test_a_gpu_is_split_into_equal_parts_and_a_rest(node: Node) -> None:
    """58 multiprocessors in parts of at least 15 make three of 16 and ten left over; a dry run returns the number."""
    seen = node.python(
        PROGRAM
        + """
parts, rest = split(whole, 15, 8)
few, left = split(whole, 15, 2)
number, kind = UINT(), Resource()
cuda.cuDevSmResourceSplitByCount(None, byref(number), byref(whole), None, 0, 2)
show([whole.sms, [part.sms for part in parts], rest.sms, len(few), left.sms, number.value,
      cuda.result("cuDevSmResourceSplitByCount", None, byref(number), byref(whole), None, 0, 59),
      cuda.result("cuDevSmResourceSplitByCount", None, byref(number), byref(kind), None, 0, 0),
      cuda.result("cuDeviceGetDevResource", 9, byref(whole), 1),
      cuda.result("cuDeviceGetDevResource", 0, byref(whole), 7)])
"""
    )
    assert seen[:6] == [58, [16, 16, 16], 10, 2, 26, 14]
    invalid, other = "CUDA_ERROR_INVALID_VALUE", "CUDA_ERROR_INVALID_RESOURCE_TYPE"
    assert seen[6:] == [invalid, other, "CUDA_ERROR_INVALID_DEVICE", other]


def test_a_green_context_costs_a_little_and_shares_the_primary_ones_memory(node: Node) -> None:
    """A green context costs 8 MiB beside the primary context, which it keeps; memory allocated in it outlives it."""
    seen = node.python(
        PROGRAM
        + """
parts, rest = split(whole, 15, 8)
primary = cuda.context(); full = cuda.info()[0]
def held(): return (full - cuda.info()[0]) // MIB
green = [cuda.make("cuGreenCtxCreate", describe(part), 0, 1) for part in parts[:2]]
seen = [held()]
context, which, back = cuda.make("cuCtxFromGreenCtx", green[0]), PTR(), PTR()
cuda.cuCtxSetCurrent(context)
address = cuda.alloc(64 * MIB); kernel = cuda.kernel()
stream = cuda.make("cuGreenCtxStreamCreate", green[0], 1, 0)
cuda.busy(kernel, 5, stream); cuda.cuStreamSynchronize(stream)
cuda.cuStreamGetCtx_v2(stream, byref(back), byref(which))
got = Resource()
cuda.cuGreenCtxGetDevResource(green[0], byref(got), 1)
seen += [held(), which.value == green[0].value, back.value, got.sms,
         cuda.result("cuCtxDestroy_v2", context),
         cuda.result("cuGreenCtxStreamCreate", byref(PTR()), green[0], 0, 0),
         cuda.result("cuGreenCtxCreate", byref(PTR()), describe(parts[0]), 0, 0),
         cuda.result("cuGreenCtxCreate", byref(PTR()), describe(parts[0]), 1, 1)]
cuda.cuDevicePrimaryCtxRelease_v2(0)
cuda.cuCtxSetCurrent(cuda.make("cuCtxFromGreenCtx", green[1]))
cuda.cuGreenCtxDestroy(green[0])
seen += [held(), cuda.result("cuMemFree_v2", address), held(), cuda.result("cuGreenCtxDestroy", green[0])]
cuda.cuGreenCtxDestroy(green[1])
made = cuda.make("cuCtxCreate_v2", 0, 0)
show([*seen, cuda.info()[0] - full])
"""
    )
    assert seen[:5] == [16, 80, True, None, 16]
    assert seen[5:9] == ["CUDA_ERROR_INVALID_CONTEXT"] + ["CUDA_ERROR_INVALID_VALUE"] * 3
    assert seen[9:13] == [72, "CUDA_SUCCESS", 8, "CUDA_ERROR_INVALID_CONTEXT"]
    assert seen[13] == 0, "one context then, one context now"
    assert node.book()[0]["used_bytes"] == 0
    assert node.book()[0]["peak_bytes"] >= CONTEXT_BYTES + 80 * MIB
