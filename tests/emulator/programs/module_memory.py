"""A module of three MiB, and what it costs."""

import json
from ctypes import byref, c_char_p, c_void_p

from tests.programs.cuda import INT, MIB, PTR, book, cuda, parameters

cuda.context()
full = cuda.info()[0]


def held() -> int:
    return (full - cuda.info()[0]) // MIB


def loaded(function: c_void_p) -> int:
    state = INT()
    cuda.cuFuncIsLoaded(byref(state), function)
    return state.value


text = c_char_p(b".version 8.0\n.visible .entry busy()\n//" + b"x" * (3 * MIB))
module = cuda.make("cuModuleLoadData", text)
function = cuda.make("cuModuleGetFunction", module, b"busy")


def from_launch_to_unload(tool: str) -> object:
    steps = [held(), loaded(function)]
    for _ in range(3):
        cuda.busy(function, 1)
    cuda.cuCtxSynchronize()
    steps += [held(), loaded(function)]
    process = json.loads(book(tool))["gpus"][0]["processes"][0]
    cuda.cuModuleUnload(module)
    images = cuda.make("cuLibraryLoadData", text, None, None, 0, None, None, 0)
    kernel = cuda.make("cuLibraryGetKernel", images, b"busy")
    steps.append(held())
    cuda.busy(kernel, 1)
    cuda.cuCtxSynchronize()
    steps.append(held())
    cuda.cuLibraryUnload(images)
    return [[*steps, held()], process]


def cost() -> object:
    return [held(), loaded(function)]


def load_without_room() -> object:
    cuda.alloc(cuda.info()[0] - MIB)
    return cuda.result("cuModuleLoadData", byref(PTR()), text)


def launch_without_room() -> object:
    cuda.alloc(cuda.info()[0] - MIB)
    loads = cuda.result("cuFuncLoad", function)
    return [loads, cuda.result("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, None, parameters(1000), None)]


def launch_once() -> object:
    cuda.busy(function, 1)
    cuda.cuCtxSynchronize()
    return [held(), loaded(function)]


def reset() -> object:
    cuda.cuFuncLoad(function)
    cuda.cuDevicePrimaryCtxReset_v2(0)
    cuda.context()
    return held()
