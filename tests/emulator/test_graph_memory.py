"""Memory that graphs allocate: when it is taken, shared, kept and freed."""

from tests.emulator.cuda_program import MIB, Node


def test_a_captured_allocation_is_taken_at_the_launch_and_kept_until_a_trim(node: Node) -> None:
    """Capturing takes nothing, and memory taken by a launch survives the free and the ends of both graphs."""
    seen = node.python("graph_memory.captured")
    assert seen == [0, 0, 64, 64, 0, 64, 64, 64, 0, "CUDA_ERROR_INVALID_VALUE"]


def test_what_a_graph_leaves_allocated_lives_until_it_is_freed(node: Node) -> None:
    """Memory left allocated is not destroyed with its graph and not trimmed, and blocks a second launch."""
    seen = node.python("graph_memory.left_allocated")
    refused, fine = "CUDA_ERROR_INVALID_VALUE", "CUDA_SUCCESS"
    assert seen == [refused, refused, fine, 32, 7, fine, 32, 0, 0, refused]


def test_a_graph_may_free_on_launch_or_in_another_graph(node: Node) -> None:
    """With the flag a relaunch frees the left memory, and a free node ends another graph's allocation."""
    seen = node.python("graph_memory.free_elsewhere")
    assert seen == [32, "CUDA_ERROR_INVALID_VALUE", 0, [0, 32, 0, 32]]


def test_graphs_share_what_they_do_not_use_at_once(node: Node) -> None:
    """Graphs of one stream map the same memory. Graphs on streams that run side by side need memory of their own."""
    seen = node.python("graph_memory.shared")
    assert seen[:2] == [[64, 64, 64, 64], [64, 64, 64, 64]]
    assert seen[2] == [160, 160, 160, 160]
    assert seen[3] == 64, "the one that waits for its host function keeps its memory"
    assert seen[4] == [0, 64, 0, 64]
    assert seen[5:] == ["CUDA_ERROR_INVALID_VALUE"] * 2


def test_a_launch_without_room_fails_and_takes_nothing(node: Node) -> None:
    """Making and instantiating a graph costs nothing, and its launch and its upload are out of memory."""
    seen = node.python("graph_memory.without_room")
    out = "CUDA_ERROR_OUT_OF_MEMORY"
    assert seen == [out, out, 0, 0, 1024]


def test_graphs_with_memory_are_restricted(node: Node) -> None:
    """A graph with memory cannot be cloned, nested, instantiated twice or updated.

    It frees no memory twice and none of other graphs, and none of its nodes can be removed.
    """
    seen = node.python("graph_memory.restrictions")
    unsupported, invalid = "CUDA_ERROR_NOT_SUPPORTED", "CUDA_ERROR_INVALID_VALUE"
    assert seen[:5] == [unsupported] * 3 + [invalid, "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE"]
    assert seen[5:] == [invalid, invalid, True, True, 0, invalid, invalid]


def test_graph_memory_goes_with_the_last_context_and_with_the_process(node: Node) -> None:
    """A reset of the primary context frees live allocations too, and a kill leaves nothing."""
    assert node.python("graph_memory.reset") == 0
    with node.background("graph_memory.keep") as holder:
        process = node.book()[0]["processes"][0]
        assert (process["graph_bytes"], process["used_bytes"] >= 64 * MIB) == (64 * MIB, True)
        holder.kill()
    assert node.used_bytes() == 0
