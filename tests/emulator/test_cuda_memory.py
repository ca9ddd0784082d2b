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
        victim = node.background("memory.churn")
        time.sleep(attempt * 0.0007)
        victim.send_signal(signal.SIGKILL)
        victim.communicate()
        assert node.used_bytes() == 0
        assert node.book()[0]["processes"] == []
    assert node.busy("--memory", "7Gi")[0] == 0


def test_a_killed_process_makes_room_for_its_neighbour(node: Node) -> None:
    """An allocation that needs a dead process's memory gets it, though no other process swept before."""
    victim = node.background("memory.hold", 7 * GIB)
    heir = node.background("memory.allocate_when_told", 7 * GIB)
    victim.kill()
    victim.communicate()
    out, _ = heir.communicate("\n")
    assert "CUDA_SUCCESS" in out


def test_the_book_remembers_the_most_that_living_processes_held(node: Node) -> None:
    """The peak of a card counts the memory held at one moment; freed memory and dead processes do not add to it."""
    program = "memory.rise_and_fall"
    victim, heir = node.background(program), node.background(program)
    assert node.book()[0]["peak_bytes"] == (1 + 3) * GIB + 2 * CONTEXT_BYTES
    victim.kill()
    victim.communicate()
    heir.communicate("\n\n")
    book = node.book()[0]
    assert (book["peak_bytes"], book["used_bytes"]) == (4 * GIB + 2 * CONTEXT_BYTES, 0)


def test_a_context_costs_memory(node: Node) -> None:
    """Retaining a primary context or creating one takes its bytes; releasing and destroying gives them back."""
    free = node.python("contexts.cost")
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
    spent, left = node.python("memory.small_allocations")
    assert spent == 4 * MIB
    assert left == 0


def test_memory_keeps_its_contents(node: Node) -> None:
    """Bytes copied to the device, filled there, copied on, and back are the same bytes."""
    back = node.python("memory.contents")
    assert back == [True, True]


def test_a_reserve_is_never_given_away(node: Node) -> None:
    """Total and free leave out the memory that the driver reserves."""
    free, total = node.python("memory.second_gpu")
    assert total == 3 * GIB
    assert free == 3 * GIB - CONTEXT_BYTES


def test_a_pool_is_trimmed_and_bounded(node: Node) -> None:
    """A trim frees the unused memory above its lower bound, and a pool never passes its size."""
    seen = node.python("pools.trim")
    assert seen == ["CUDA_ERROR_OUT_OF_MEMORY", [128, 50, 50, 10, 10, 0]]


def test_pools_keep_what_their_threshold_allows(node: Node) -> None:
    """Freed pool memory stays reserved until a synchronisation, and beyond it up to the threshold."""
    seen = node.python("pools.threshold")
    first, second, reserved_high, used_high, charged = seen
    used = 100 * MIB
    assert first[:4] == [128 * MIB, used, 128 * MIB, 0]
    assert first[4:] == [0, 0]
    assert second == [128 * MIB, used, 128 * MIB, 0, 128 * MIB, 0]
    assert (reserved_high, used_high, charged) == (128 * MIB, used, 128 * MIB)


def test_mapped_memory_is_charged_until_nothing_refers_to_it(node: Node) -> None:
    """Physical memory costs from its creation until its handle and all its mappings are gone."""
    seen = node.python("memory.mapped")
    assert seen == [2 * MIB, 8 * MIB, 77, 8 * MIB, 0, "CUDA_ERROR_INVALID_VALUE"]


def test_an_absurd_address_range_is_refused(node: Node) -> None:
    """A range as large as all addresses, however aligned, is out of memory and harms nothing."""
    seen = node.python("memory.absurd_range")
    assert seen == ["CUDA_ERROR_OUT_OF_MEMORY"] * 3


def test_addresses_are_reserved_where_asked_for(node: Node) -> None:
    """A requested address is given if it is free, so that 32-bit addresses can be had; else another address."""
    seen = node.python("memory.wished_address")
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
    seen = node.python("contexts.heap_and_printf")
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
