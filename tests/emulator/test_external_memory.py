"""External memory by descriptor, and arrays that get their memory after their creation."""

from tests.emulator.cuda_program import MIB, Node


def test_external_memory_is_paid_once_and_outlives_its_handle(node: Node) -> None:
    """A buffer in external memory shows the same bytes, and holds the memory after handle and import are gone."""
    seen = node.python("external_memory.mapped_buffer")
    assert seen == [8, "CUDA_ERROR_INVALID_VALUE", 64, False, 64, 0]


def test_a_mipmapped_array_lies_in_external_memory(node: Node) -> None:
    """A mipmapped array's levels are the same memory, which goes with the array."""
    seen = node.python("external_memory.mipmapped_array")
    assert seen == ["CUDA_ERROR_INVALID_VALUE", 16, 0]


def test_external_memory_must_be_this_nodes_and_large_enough(node: Node) -> None:
    """A foreign file, another type of handle, or too large a size is refused, and the descriptor stays open."""
    seen = node.python("external_memory.refusals")
    invalid = "CUDA_ERROR_INVALID_VALUE"
    assert seen == [invalid, "CUDA_ERROR_NOT_SUPPORTED", invalid, invalid, True]


def test_sparse_and_deferred_arrays_hold_what_is_mapped_into_them(node: Node) -> None:
    """A new array of these kinds costs nothing.

    A mapping keeps the handle's memory until it, the array or the context goes.
    """
    seen = node.python("external_memory.sparse_and_deferred")
    invalid, fine = "CUDA_ERROR_INVALID_VALUE", "CUDA_SUCCESS"
    small = 2  # the plain array's block
    assert seen[:3] == [small, invalid, invalid]
    assert seen[3:6] == [fine, small + 66, small + 66]
    assert seen[6:10] == [fine, small + 66, fine, small + 64]
    assert seen[10:] == [small, 0]
    assert node.used_bytes() < MIB
