"""The driver as a program meets it: misuse, forks, devices, functions looked up."""

import ctypes
import json
import os
import uuid
from ctypes import byref, c_char, c_char_p

from tests.programs.cuda import GIB, INT, MIB, PTR, SIZE, U64, aside, cuda, library, parameters


def misuse() -> object:
    address, count, handle = U64(), INT(), PTR()
    seen = {}
    seen["before cuInit"] = cuda.result("cuDeviceGetCount", byref(count))
    seen["cuInit flags"] = cuda.result("cuInit", 1)
    cuda.cuInit(0)
    seen["no context"] = cuda.result("cuMemAlloc_v2", byref(address), SIZE(1))
    seen["no device 2"] = cuda.result("cuDeviceGet", byref(count), 2)
    seen["null"] = cuda.result("cuDeviceGetCount", None)
    context = PTR()
    cuda.cuCtxCreate_v2(byref(context), 0, 0)
    seen["zero bytes"] = cuda.result("cuMemAlloc_v2", byref(address), SIZE(0))
    seen["too many bytes"] = cuda.result("cuMemAlloc_v2", byref(address), SIZE(1 << 60))
    seen["foreign pointer"] = cuda.result("cuMemFree_v2", U64(4096))
    seen["free of null"] = cuda.result("cuMemFree_v2", U64(0))
    seen["stale stream"] = cuda.result("cuStreamQuery", PTR(4096))
    seen["bad event"] = cuda.result("cuEventQuery", PTR(4096))
    seen["bad function"] = cuda.result("cuLaunchKernel", PTR(4096), 1, 1, 1, 1, 1, 1, 0, None, None, None)
    kernel = cuda.kernel(b"other")
    seen["no grid"] = cuda.result("cuLaunchKernel", kernel, 0, 1, 1, 1, 1, 1, 0, None, None, None)
    seen["block"] = cuda.result("cuLaunchKernel", kernel, 1, 1, 1, 1025, 1, 1, 0, None, None, None)
    ptx = c_char_p(b".version 6.0\n.visible .entry there(){ret;}")
    module = cuda.make("cuModuleLoadData", ptx)
    seen["in ptx"] = cuda.result("cuModuleGetFunction", byref(handle), module, b"there")
    seen["not in ptx"] = cuda.result("cuModuleGetFunction", byref(handle), module, b"here")
    other = cuda.alloc(4096)
    seen["past the end"] = cuda.result("cuMemsetD8_v2", other, 1, SIZE(4097))
    cuda.cuCtxDestroy_v2(context)
    cuda.cuCtxCreate_v2(byref(context), 0, 0)
    seen["freed with its context"] = cuda.result("cuMemFree_v2", other)
    return seen


def fork_after_init() -> object:
    cuda.context()
    address = cuda.alloc(64 * MIB)
    count = INT()
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        results = [cuda.raw("cuInit", 0), cuda.raw("cuDeviceGetCount", byref(count))]
        os.write(writer, json.dumps(results).encode())
        os._exit(0)
    os.waitpid(child, 0)
    free = cuda.info()[0]
    return [json.loads(os.read(reader, 100)), cuda.result("cuMemFree_v2", address), 8 * GIB - free]


def fork_before_init() -> object:
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        cuda.context()
        cuda.alloc(64 * MIB)
        os.write(writer, json.dumps(cuda.info()[0]).encode())
        os._exit(0)
    os.waitpid(child, 0)
    cuda.context()
    return [8 * GIB - json.loads(os.read(reader, 100)), 8 * GIB - cuda.info()[0]]


def visible_devices() -> object:
    result, count = cuda.result("cuInit", 0), INT()
    if result == "CUDA_SUCCESS":
        cuda.cuDeviceGetCount(byref(count))
    return ["GPU-" + _uuid("_v2", device)[:8] for device in range(count.value)] or result


def device_names() -> object:
    """Both UUIDs of each device: that of the card and that of the instance."""
    count = INT()
    cuda.result("cuInit", 0)
    cuda.result("cuDeviceGetCount", byref(count))
    return [[_uuid("", device), _uuid("_v2", device)] for device in range(count.value)]


def _uuid(version: str, device: int) -> str:
    text = (c_char * 16)()
    cuda.result("cuDeviceGetUuid" + version, text, device)
    return str(uuid.UUID(bytes=text.raw))


SYMBOLS = [
    *("cuMemAlloc", "cuMemAlloc_v2", "cuCtxCreate", "cuCtxCreate_v2", "cuCtxCreate_v3", "cuCtxCreate_v4"),
    *("cuLaunchKernel", "cuLaunchKernel_ptsz", "cuMemcpyHtoD_v2", "cuMemcpyHtoD_v2_ptds"),
    *("cuGetProcAddress", "cuGetProcAddress_v2", "cuInit"),
]


def find_functions() -> object:
    def find(name: str, version: int, flags: int = 0) -> list[object]:
        address, status = PTR(), INT(-1)
        code = library.cuGetProcAddress_v2(name.encode(), byref(address), version, U64(flags), byref(status))
        symbols = [s for s in SYMBOLS if ctypes.cast(getattr(library, s), PTR).value == address.value]
        return [code, symbols[0] if symbols else None, status.value]

    address = PTR()
    return [
        find("cuMemAlloc", 2000),
        find("cuMemAlloc", 12080),
        find("cuCtxCreate", 11030),
        find("cuCtxCreate", 11040),
        find("cuCtxCreate", 12050),
        find("cuLaunchKernel", 12080),
        find("cuLaunchKernel", 12080, 2),
        find("cuLaunchKernel", 6050, 2),
        find("cuMemcpyHtoD", 12080, 2),
        find("cuGetProcAddress", 11030),
        find("cuGetProcAddress", 12000),
        find("cuInit", 12080, 2),
        find("cuLaunchKernelEx", 11050),
        find("cuNothing", 12080),
        cuda.result("cuGetProcAddress", b"cuNothing", byref(address), 12080, U64(0)),
        cuda.result("cuGetProcAddress", b"cuInit", byref(address), 12080, U64(64)),
    ]


def call_unsupported() -> object:
    cuda.context()
    address = PTR()

    def answer(flags: int) -> tuple[int, int]:
        cuda.cuGetProcAddress(b"cuStreamGetAttribute", byref(address), 12080, U64(flags))
        assert address.value is not None
        function = ctypes.CFUNCTYPE(INT, PTR, INT, PTR)(address.value)
        return address.value, int(function(None, 1, None))

    (common, first), (per_thread, second) = answer(1), answer(2)
    return [first, second, common != per_thread]


def per_thread_stream() -> object:
    context = cuda.context()
    kernel = cuda.kernel()
    params = parameters(400_000_000)
    cuda.cuLaunchKernel_ptsz(kernel, 1, 1, 1, 1, 1, 1, 0, None, params, None)
    results: list[str] = []

    def ask() -> None:
        cuda.cuCtxSetCurrent(context)
        results.append(cuda.result("cuStreamQuery_ptsz", None))

    aside(ask)
    own = cuda.result("cuStreamQuery_ptsz", None)
    cuda.cuStreamSynchronize_ptsz(None)
    return [*results, own, cuda.result("cuStreamQuery_ptsz", None)]
