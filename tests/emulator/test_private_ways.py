"""Private driver functions, as NVIDIA's runtime may use them, which a preloaded library cannot see."""

import pytest

from tests.emulator.cuda_program import CONTEXT_BYTES, NODE, Node


def test_a_primary_context_is_made_and_reset_privately(node: Node) -> None:
    """The private functions have the effect of the public ones, on the same context."""
    active, same, after = node.python("""
        flags, active = UINT(), INT()
        cuda.cuInit(0); context, public = PTR(), PTR()
        cuda.plimsoll_emulator_private_retain(byref(context), 0); cuda.cuCtxSetCurrent(context)
        cuda.alloc(MIB); cuda.cuDevicePrimaryCtxGetState(0, byref(flags), byref(active))
        cuda.cuDevicePrimaryCtxRetain(byref(public), 0)
        cuda.plimsoll_emulator_private_reset(0)
        show([active.value, public.value == context.value, cuda.result("cuMemAlloc_v2", byref(U64()), SIZE(MIB))])
    """)
    assert (active, same, after) == (1, True, "CUDA_ERROR_CONTEXT_IS_DESTROYED")
    assert node.book()[0]["peak_bytes"] == CONTEXT_BYTES + (2 << 20)


def test_every_context_has_an_id_of_its_own(node: Node) -> None:
    """No context id is used twice in a program's life, not even after a reset of the primary context."""
    ids = node.python("""
        ids = []
        def note(context):
            value = U64(); cuda.cuCtxGetId(context, byref(value)); ids.append(value.value)
        note(cuda.context())
        first = cuda.make("cuCtxCreate_v2", 0, 0); note(first); cuda.cuCtxDestroy_v2(first)
        note(cuda.make("cuCtxCreate_v2", 0, 0))
        for end in "plimsoll_emulator_private_reset", "cuDevicePrimaryCtxReset_v2", "cuDevicePrimaryCtxRelease_v2":
            cuda.raw(end, 0); note(cuda.context())
        show(ids)
    """)
    assert len(set(ids)) == len(ids) == 6


@pytest.mark.parametrize("private", ["yes", "no"])
def test_functions_have_private_addresses_where_the_node_says_so(node: Node, private: str) -> None:
    """If the node says so, each looked-up function has an address of its own, differs from its export, and works."""
    node.config.write_text(f"private-addresses = {private}\n{NODE}")
    exported, distinct, free = node.python("""
        names = "cuMemAlloc cuMemFree cuLaunchKernel cuMemAllocAsync cuCtxCreate cuMemGetInfo cuInit cuGetProcAddress"
        def find(name, version=12080, flags=0):
            address = PTR()
            cuda.cuGetProcAddress(name.encode(), byref(address), version, U64(flags))
            return address.value
        def symbol(name): return ctypes.cast(getattr(library, name), PTR).value
        public = {symbol(name + suffix) for name in names.split() for suffix in ("", "_v2", "_v3", "_v4", "_ptsz")
                  if hasattr(library, name + suffix)}
        found = {find(name, version, flags)
                 for name in names.split() for version in (11040, 12080) for flags in (0, 2)}
        call = lambda name, *types: ctypes.CFUNCTYPE(INT, *types)(find(name))
        context, address, free, total = PTR(), U64(), SIZE(), SIZE()
        assert call("cuInit", UINT)(0) == 0
        assert call("cuCtxCreate", PTR, PTR, UINT, INT)(ctypes.addressof(context), None, 0, 0) == 0
        assert call("cuMemAlloc", PTR, SIZE)(ctypes.addressof(address), 64 * MIB) == 0
        length = U64(1000); parameters = (PTR * 1)(ctypes.addressof(length))
        launch = call("cuLaunchKernel", PTR, *[UINT] * 7, PTR, PTR, PTR)
        assert launch(cuda.kernel(), 1, 1, 1, 1, 1, 1, 0, None, ctypes.addressof(parameters), None) == 0
        assert call("cuMemGetInfo", PTR, PTR)(ctypes.addressof(free), ctypes.addressof(total)) == 0
        show([len(found & public), len(found), (total.value - free.value) // MIB])
    """)
    assert exported == (0 if private == "yes" else distinct)
    assert distinct >= 11
    assert free == 364
