"""Ways to the driver that a library between it and its program cannot see."""

import ctypes
from collections.abc import Callable
from ctypes import byref, c_void_p
from typing import Any

from tests.programs.cuda import INT, MIB, PTR, SIZE, U64, UINT, cuda, library, parameters


def retain_and_reset() -> object:
    flags, active = UINT(), INT()
    cuda.cuInit(0)
    context, public = PTR(), PTR()
    cuda.plimsoll_emulator_private_retain(byref(context), 0)
    cuda.cuCtxSetCurrent(context)
    cuda.alloc(MIB)
    cuda.cuDevicePrimaryCtxGetState(0, byref(flags), byref(active))
    cuda.cuDevicePrimaryCtxRetain(byref(public), 0)
    cuda.plimsoll_emulator_private_reset(0)
    return [
        active.value,
        public.value == context.value,
        cuda.result("cuMemAlloc_v2", byref(U64()), SIZE(MIB)),
    ]


def context_ids() -> object:
    ids = []

    def note(context: c_void_p) -> None:
        value = U64()
        cuda.cuCtxGetId(context, byref(value))
        ids.append(value.value)

    note(cuda.context())
    first = cuda.make("cuCtxCreate_v2", 0, 0)
    note(first)
    cuda.cuCtxDestroy_v2(first)
    note(cuda.make("cuCtxCreate_v2", 0, 0))
    for end in (
        "plimsoll_emulator_private_reset",
        "cuDevicePrimaryCtxReset_v2",
        "cuDevicePrimaryCtxRelease_v2",
    ):
        cuda.raw(end, 0)
        note(cuda.context())
    return ids


def addresses() -> object:
    names = (
        "cuMemAlloc cuMemFree cuLaunchKernel cuMemAllocAsync cuCtxCreate cuMemGetInfo cuInit cuGetProcAddress"
    )

    def find(name: str, version: int = 12080, flags: int = 0) -> int:
        address = PTR()
        cuda.cuGetProcAddress(name.encode(), byref(address), version, U64(flags))
        assert address.value is not None
        return address.value

    def symbol(name: str) -> int | None:
        return ctypes.cast(getattr(library, name), PTR).value

    public = {
        symbol(name + suffix)
        for name in names.split()
        for suffix in ("", "_v2", "_v3", "_v4", "_ptsz")
        if hasattr(library, name + suffix)
    }
    found = {
        find(name, version, flags) for name in names.split() for version in (11040, 12080) for flags in (0, 2)
    }

    def call(name: str, *types: Any) -> Callable[..., int]:  # noqa: ANN401 - types of ctypes
        return ctypes.CFUNCTYPE(INT, *types)(find(name))

    context, address, free, total = PTR(), U64(), SIZE(), SIZE()
    assert call("cuInit", UINT)(0) == 0
    assert call("cuCtxCreate", PTR, PTR, UINT, INT)(ctypes.addressof(context), None, 0, 0) == 0
    assert call("cuMemAlloc", PTR, SIZE)(ctypes.addressof(address), 64 * MIB) == 0
    params = parameters(1000)
    launch = call("cuLaunchKernel", PTR, *[UINT] * 7, PTR, PTR, PTR)
    assert launch(cuda.kernel(), 1, 1, 1, 1, 1, 1, 0, None, ctypes.addressof(params), None) == 0
    assert call("cuMemGetInfo", PTR, PTR)(ctypes.addressof(free), ctypes.addressof(total)) == 0
    return [len(found & public), len(found), (total.value - free.value) // MIB]
