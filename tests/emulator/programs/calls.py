"""The breadth of the API: arrays, launches, pointers, lost GPUs."""

import ctypes
import json
import os
from ctypes import byref
from pathlib import Path

from tests.programs.cuda import GIB, INT, PTR, SHAPE, SIZE, U64, UINT, book, cuda, parameters
from tests.programs.structures import Config, Flat, Form, Launch, Side


def arrays() -> object:
    cuda.context()
    full = cuda.info()[0]
    form = Form(1024, 1024, 0, 0x20, 1, 0)
    array = cuda.make("cuArray3DCreate_v2", byref(form))
    spent = full - cuda.info()[0]
    source = ctypes.create_string_buffer(bytes(range(200)), 200)
    target = ctypes.create_string_buffer(200)
    inside = Side(type=3, array=array.value, x=8, y=2)
    there = Flat(Side(type=1, host=ctypes.addressof(source), pitch=20), inside, 20, 10)
    back = Flat(inside, Side(type=1, host=ctypes.addressof(target), pitch=20), 20, 10)
    cuda.cuMemcpy2D_v2(byref(there))
    cuda.cuMemcpy2D_v2(byref(back))
    below = Side(type=3, array=array.value, y=1020)
    outside = Flat(Side(type=1, host=ctypes.addressof(source)), below, 20, 10)
    error = cuda.result("cuMemcpy2D_v2", byref(outside))
    mipmap = cuda.make("cuMipmappedArrayCreate", byref(form), 2)
    both = full - cuda.info()[0]
    cuda.cuMipmappedArrayDestroy(mipmap)
    cuda.cuArrayDestroy(array)
    return [spent, source.raw == target.raw, error, both, full - cuda.info()[0]]


def every_launch(tool: str) -> object:
    cuda.context()
    kernel = cuda.kernel()
    params = parameters(1_000_000)
    cuda.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, None, params, None)
    cuda.cuLaunchKernelEx(byref(Config(SHAPE)), kernel, params, None)
    cuda.cuLaunchCooperativeKernel(kernel, 1, 1, 1, 1, 1, 1, 0, None, params)
    launches = (Launch * 2)(*[Launch(kernel, SHAPE, 0, None, ctypes.addressof(params))] * 2)
    cuda.cuLaunchCooperativeKernelMultiDevice(launches, 2, 0)
    loaded = PTR()
    cuda.cuLibraryLoadData(byref(loaded), b"any image", None, None, 0, None, None, 0)
    of_library = cuda.make("cuLibraryGetKernel", loaded, b"busy")
    function = cuda.make("cuKernelGetFunction", of_library)
    cuda.cuLaunchKernel(of_library, 1, 1, 1, 1, 1, 1, 0, None, params, None)
    cuda.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, params, None)
    size = SIZE(8)
    length = U64(1_000_000)
    extra = (PTR * 5)(1, ctypes.addressof(length), 2, ctypes.addressof(size), 0)
    cuda.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, None, None, extra)
    cuda.cuCtxSynchronize()
    return json.loads(book(tool))["gpus"][0]["processes"][0]


def pointer_attributes() -> object:
    cuda.context()
    device, managed, host, pooled = cuda.alloc(100), U64(), PTR(), U64()
    cuda.cuMemAllocManaged(byref(managed), SIZE(100), 1)
    cuda.cuMemHostAlloc(byref(host), SIZE(100), 2)
    cuda.cuMemAllocAsync(byref(pooled), SIZE(100), None)
    own = ctypes.create_string_buffer(100)
    cuda.cuMemHostRegister_v2(own, SIZE(100), 0)

    def describe(address: int) -> list[object]:
        kind, is_managed, start = INT(-1), ctypes.c_bool(), U64()
        keys = (INT * 3)(2, 8, 11)
        values = (PTR * 3)(ctypes.addressof(kind), ctypes.addressof(is_managed), ctypes.addressof(start))
        cuda.cuPointerGetAttributes(3, keys, values, U64(address))
        return [kind.value, is_managed.value, start.value and address - start.value]

    base, size = U64(), SIZE()
    cuda.cuMemGetAddressRange_v2(byref(base), byref(size), U64(device.value + 50))
    twice = cuda.result("cuMemHostRegister_v2", own, SIZE(100), 0)
    assert host.value is not None
    places = [device.value + 7, managed.value, host.value, pooled.value, ctypes.addressof(own), 64]
    known = [describe(address) for address in places]
    cuda.cuMemFreeHost(host)
    cuda.cuMemHostUnregister(own)
    return [known, base.value == device.value, size.value, twice]


def lost_gpu(tool: str) -> object:
    context = cuda.context()
    cuda.alloc(100)
    book(tool, "lose", "0")
    lost = cuda.result("cuCtxSynchronize")
    cuda.context(1)
    other = cuda.result("cuCtxSynchronize")
    cuda.cuCtxSetCurrent(context)
    book(tool, "find", "0")
    return [lost, other, cuda.result("cuCtxSynchronize")]


def clear_gigabytes() -> object:
    cuda.context()
    address, word = cuda.alloc(6 * GIB), UINT(1)
    cuda.cuMemsetD32_v2(U64(address.value + 4096), 5, SIZE(1))
    cuda.cuMemsetD8_v2(address, 0, SIZE(6 * GIB))
    cuda.cuMemcpyDtoH_v2(byref(word), U64(address.value + 4096), SIZE(4))
    assert word.value == 0
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def launch_on_each_device() -> None:
    params = parameters(20_000_000)
    launches = []
    for device in range(2):
        cuda.context(device)
        kernel = cuda.kernel()
        stream = cuda.make("cuStreamCreate", 1)
        launches.append(Launch(kernel, SHAPE, 0, stream, ctypes.addressof(params)))
    cuda.cuLaunchCooperativeKernelMultiDevice((Launch * 2)(*launches), 2, 0)
    for launch in launches:
        cuda.cuStreamSynchronize(PTR(launch.stream))
