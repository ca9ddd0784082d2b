"""Device memory is charged to the process that holds it, and all of it comes back."""

import signal
import time

import pytest

from tests.emulator.cuda_program import CONTEXT_BYTES, GIB, MIB, Node, wait_for


def test_memory_of_all_processes_adds_up(node: Node) -> None:
    """The card's used memory is the sum over its processes, and the next process finds only the rest."""
    holders = [node.start("--memory", "2Gi", "--hold-seconds", "600") for _ in range(3)]
    try:
        wait_for(lambda: node.used_bytes() == 3 * (2 * GIB + CONTEXT_BYTES))
        processes = node.book()[0]["processes"]
        assert {process["pid"] for process in processes} == {holder.pid for holder in holders}
        assert all(process["used_bytes"] == 2 * GIB + CONTEXT_BYTES for process in processes)
        code, phases = node.busy("--memory", "1Gi")
        assert code == 2
        assert phases[-1] == {
            "phase": "failed", "call": "cuMemAlloc_v2", "error": "CUDA_ERROR_OUT_OF_MEMORY", "requested": GIB,
        }  # fmt: skip
    finally:
        for holder in holders:
            holder.kill()
            holder.communicate()


def test_a_kill_frees_everything_at_once(node: Node) -> None:
    """After `kill -9` at any moment of a process that allocates in a loop, its memory is free."""
    for attempt in range(20):
        victim = node.background(
            "cuda.context(); show(1)\nwhile True:\n    cuda.cuMemFree_v2(cuda.alloc(64 * MIB))"
        )
        time.sleep(attempt * 0.0007)
        victim.send_signal(signal.SIGKILL)
        victim.communicate()
        assert node.used_bytes() == 0
        assert node.book()[0]["processes"] == []
    assert node.busy("--memory", "7Gi")[0] == 0


def test_a_killed_process_makes_room_for_its_neighbour(node: Node) -> None:
    """An allocation that needs a dead process's memory gets it, though no other process swept before."""
    victim = node.background("cuda.context(); cuda.alloc(7 * GIB); show(1); time.sleep(600)")
    heir = node.background("""
        cuda.context(); show(1); input()
        show(cuda.result("cuMemAlloc_v2", byref(U64()), SIZE(7 * GIB)))
    """)
    victim.kill()
    victim.communicate()
    out, _ = heir.communicate("\n")
    assert "CUDA_SUCCESS" in out


def test_the_book_remembers_the_most_that_living_processes_held(node: Node) -> None:
    """The peak of a card counts the memory held at one moment; freed memory and dead processes do not add to it."""
    program = """
        cuda.context(); cuda.cuMemFree_v2(cuda.alloc(3 * GIB)); cuda.alloc(GIB); show(1)
        input(); cuda.alloc(GIB); show(2); input()
    """
    victim, heir = node.background(program), node.background(program)
    assert node.book()[0]["peak_bytes"] == (1 + 3) * GIB + 2 * CONTEXT_BYTES
    victim.kill()
    victim.communicate()
    heir.communicate("\n\n")
    book = node.book()[0]
    assert (book["peak_bytes"], book["used_bytes"]) == (4 * GIB + 2 * CONTEXT_BYTES, 0)


def test_the_dead_do_not_raise_the_peak(node: Node) -> None:
    """Memory that a process takes just after another's death is not added to the dead process's memory."""
    victim = node.background("cuda.context(); cuda.alloc(2 * GIB); show(1); input()")
    heir = node.background("cuda.context(); show(1); input(); cuda.alloc(2 * GIB)")
    victim.kill()
    victim.communicate()
    heir.communicate("\n")
    assert node.book()[0]["peak_bytes"] == 2 * GIB + 2 * CONTEXT_BYTES


def test_a_context_costs_memory(node: Node) -> None:
    """Retaining a primary context or creating one takes its bytes; releasing and destroying gives them back."""
    free = node.python("""
        cuda.cuInit(0)
        primary, made, seen = PTR(), PTR(), []
        cuda.cuCtxCreate_v2(byref(made), 0, 0); seen.append(cuda.info()[0])
        cuda.cuDevicePrimaryCtxRetain(byref(primary), 0); seen.append(cuda.info()[0])
        cuda.cuDevicePrimaryCtxRetain(byref(primary), 0); seen.append(cuda.info()[0])
        cuda.cuDevicePrimaryCtxRelease_v2(0); seen.append(cuda.info()[0])
        cuda.cuDevicePrimaryCtxRelease_v2(0); seen.append(cuda.info()[0])
        show(seen)
    """)
    one, two = 8 * GIB - CONTEXT_BYTES, 8 * GIB - 2 * CONTEXT_BYTES
    assert free == [one, two, two, two, one]


@pytest.mark.parametrize("path", ["alloc", "pitch", "managed", "async", "create"])
def test_every_way_to_allocate_is_charged(node: Node, path: str) -> None:
    """The book shows memory of every allocating call, and shows it gone after the free."""
    with node.start("--memory", "1Gi", "--path", path, "--hold-seconds", "600") as holder:
        wait_for(lambda: node.used_bytes() >= GIB + CONTEXT_BYTES)
        assert node.used_bytes() <= GIB + CONTEXT_BYTES + 32 * MIB
        holder.kill()
    code, _ = node.busy("--memory", "1Gi", "--path", path)
    assert code == 0
    assert node.used_bytes() == 0


def test_small_allocations_share_granules(node: Node) -> None:
    """A thousand small allocations cost as many 2 MiB blocks as they fill, not a block each."""
    spent, left = node.python("""
        cuda.context()
        before = cuda.info()[0]
        all = [cuda.alloc(4096) for _ in range(1024)]
        spent = before - cuda.info()[0]
        for one in all: cuda.cuMemFree_v2(one)
        show([spent, before - cuda.info()[0]])
    """)
    assert spent == 4 * MIB
    assert left == 0


def test_memory_keeps_its_contents(node: Node) -> None:
    """Bytes copied to the device, filled there, copied on, and back are the same bytes."""
    back = node.python("""
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
        show([good, target.raw[:4] == b"\\x07" * 4])
    """)
    assert back == [True, True]


def test_a_reserve_is_never_given_away(node: Node) -> None:
    """Total and free leave out the memory that the driver reserves."""
    free, total = node.python("cuda.context(1)\nshow(cuda.info())")
    assert total == 3 * GIB
    assert free == 3 * GIB - CONTEXT_BYTES


def test_a_pool_is_trimmed_and_bounded(node: Node) -> None:
    """A trim frees the unused memory above its lower bound, and a pool never passes its size."""
    seen = node.python("""
        cuda.context()
        pool, address, seen, full = PTR(), [U64(), U64()], [], cuda.info()[0]
        props = (U64 * 11)(1, 1, 0, 128 * MIB)
        cuda.cuMemPoolCreate(byref(pool), (ctypes.c_ubyte * 88).from_buffer(props))
        cuda.cuMemPoolSetAttribute(pool, 4, byref(U64(1 << 40)))
        for one in address: cuda.cuMemAllocFromPoolAsync(byref(one), SIZE(60 * MIB), pool, None)
        more = cuda.result("cuMemAllocFromPoolAsync", byref(U64()), SIZE(9 * MIB), pool, None)
        for one in address: cuda.cuMemFreeAsync(one, None)
        def held(keep):
            cuda.cuMemPoolTrimTo(pool, SIZE(keep))
            return (full - cuda.info()[0]) // MIB
        cuda.cuCtxSynchronize()
        seen = [held(1 << 40), held(50 * MIB), held(64 * MIB)]
        cuda.cuMemAllocFromPoolAsync(byref(address[0]), SIZE(9 * MIB), pool, None)
        seen += [held(0)]
        cuda.cuMemPoolDestroy(pool); seen.append((full - cuda.info()[0]) // MIB)
        cuda.cuMemFreeAsync(address[0], None); seen.append((full - cuda.info()[0]) // MIB)
        show([more, seen])
    """)
    assert seen == ["CUDA_ERROR_OUT_OF_MEMORY", [128, 50, 50, 10, 10, 0]]


def test_pools_keep_what_their_threshold_allows(node: Node) -> None:
    """Freed pool memory stays reserved until a synchronisation, and beyond it up to the threshold."""
    seen = node.python("""
        cuda.context()
        pool = cuda.make("cuDeviceGetDefaultMemPool", 0)
        def read(attribute):
            value = U64()
            cuda.cuMemPoolGetAttribute(pool, attribute, byref(value))
            return value.value
        def use(threshold):
            cuda.cuMemPoolSetAttribute(pool, 4, byref(U64(threshold)))
            address = U64()
            cuda.cuMemAllocAsync(byref(address), SIZE(100 * MIB), None)
            held = [read(5), read(7)]
            cuda.cuMemFreeAsync(address, None)
            before = [read(5), read(7)]
            cuda.cuCtxSynchronize()
            return held + before + [read(5), read(7)]
        free = cuda.info()[0]
        show([use(0), use(1 << 40), read(6), read(8), free - cuda.info()[0]])
    """)
    first, second, reserved_high, used_high, charged = seen
    used = 100 * MIB
    assert first[:4] == [128 * MIB, used, 128 * MIB, 0]
    assert first[4:] == [0, 0]
    assert second == [128 * MIB, used, 128 * MIB, 0, 128 * MIB, 0]
    assert (reserved_high, used_high, charged) == (128 * MIB, used, 128 * MIB)


def test_mapped_memory_is_charged_until_nothing_refers_to_it(node: Node) -> None:
    """Physical memory costs from its creation until its handle and all its mappings are gone."""
    seen = node.python("""
        class Location(ctypes.Structure):
            _fields_ = [("type", INT), ("id", INT)]
        class Props(ctypes.Structure):
            _fields_ = [("type", INT), ("handles", INT), ("location", Location), ("meta", PTR), ("rest", U64 * 2)]
        class Access(ctypes.Structure):
            _fields_ = [("location", Location), ("flags", INT)]
        cuda.context()
        props = Props(type=1, location=Location(1, 0))
        granule, handle, address = SIZE(), U64(), U64()
        cuda.cuMemGetAllocationGranularity(byref(granule), byref(props), 0)
        full = cuda.info()[0]
        spent = lambda: full - cuda.info()[0]
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
        show(seen + [spent(), odd])
    """)
    assert seen == [2 * MIB, 8 * MIB, 77, 8 * MIB, 0, "CUDA_ERROR_INVALID_VALUE"]


def test_an_absurd_address_range_is_refused(node: Node) -> None:
    """A range as large as all addresses, however aligned, is out of memory and harms nothing."""
    seen = node.python("""
        cuda.context()
        size, address = 2**64 - 2 * MIB, U64()
        reserve = lambda alignment: cuda.result(
            "cuMemAddressReserve", byref(address), SIZE(size), SIZE(alignment), U64(0), U64(0)
        )
        show([reserve(alignment) for alignment in (0, 4 * MIB, 1 << 30)])
    """)
    assert seen == ["CUDA_ERROR_OUT_OF_MEMORY"] * 3


def test_addresses_are_reserved_where_asked_for(node: Node) -> None:
    """A requested address is given if it is free, so that 32-bit addresses can be had, and refused if it is taken."""
    seen = node.python("""
        cuda.context()
        wish, address, other = U64(0x40000000), U64(), U64()
        cuda.cuMemAddressReserve(byref(address), SIZE(4 * MIB), SIZE(0), wish, U64(0))
        cuda.cuMemAddressReserve(byref(other), SIZE(4 * MIB), SIZE(0), wish, U64(0))
        show([address.value, other.value in (0, wish.value)])
    """)
    assert seen == [0x40000000, False]


def test_memory_grows_in_steps(node: Node) -> None:
    """`busy` allocates in the requested number of steps, so that its memory visibly rises."""
    with node.start("--memory", "1Gi", "--steps", "8", "--step-ms", "100", "--hold-seconds", "600") as holder:
        heights: set[int] = set()

        def saw_it_rise() -> bool:
            heights.add(node.used_bytes())
            return GIB + CONTEXT_BYTES in heights

        wait_for(saw_it_rise)
        holder.kill()
    assert len(heights) > 2


def test_a_contexts_heap_and_printf_buffer_cost_memory(node: Node) -> None:
    """Beyond 8 and 1 MiB the buffers take the card's free memory, and the context's end frees them."""
    seen = node.python("""
        def limit(which):
            value = SIZE(); cuda.cuCtxGetLimit(byref(value), which); return value.value
        PRINTF, HEAP = 1, 2
        cuda.context(); start = cuda.info()[0]; used = lambda: (start - cuda.info()[0]) // MIB
        seen = [limit(HEAP) // MIB, limit(PRINTF) // MIB]
        def put(which, mib):
            result = cuda.result("cuCtxSetLimit", which, SIZE(mib * MIB))
            seen.append([result, limit(which) // MIB, used()])
        put(HEAP, 4); put(HEAP, 108); put(PRINTF, 51); put(HEAP, 9000); put(HEAP, 58); put(PRINTF, 1)
        cuda.cuCtxSetLimit(0, SIZE(64 * MIB)); seen.append(used())
        cuda.cuDevicePrimaryCtxReset_v2(0); cuda.context()
        seen += [used(), limit(HEAP) // MIB]
        show(seen)
    """)
    fine, refused = "CUDA_SUCCESS", "CUDA_ERROR_OUT_OF_MEMORY"
    assert seen == [
        *(8, 1),
        *(
            [fine, 4, 0],
            [fine, 108, 100],
            [fine, 51, 150],
            [refused, 108, 150],
            [fine, 58, 100],
            [fine, 1, 50],
        ),
        *(50, 0, 8),
    ]
