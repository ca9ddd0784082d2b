"""Green contexts: parts of a GPU's multiprocessors, and their cost."""

from tests.emulator.cuda_program import CONTEXT_BYTES, MIB, Node


def test_a_gpu_is_split_into_equal_parts_and_a_rest(node: Node) -> None:
    """58 multiprocessors in parts of at least 15 make three of 16 and ten left over; a dry run returns the number."""
    seen = node.python("green_contexts.equal_parts")
    assert seen[:6] == [58, [16, 16, 16], 10, 2, 26, 14]
    invalid, other = "CUDA_ERROR_INVALID_VALUE", "CUDA_ERROR_INVALID_RESOURCE_TYPE"
    assert seen[6:] == [invalid, other, "CUDA_ERROR_INVALID_DEVICE", other]


def test_a_green_context_costs_a_little_and_shares_the_primary_ones_memory(node: Node) -> None:
    """A green context costs 8 MiB beside the primary context, which it keeps; memory allocated in it outlives it."""
    seen = node.python("green_contexts.cost")
    assert seen[:5] == [16, 80, True, None, 16]
    assert seen[5:9] == ["CUDA_ERROR_INVALID_CONTEXT"] + ["CUDA_ERROR_INVALID_VALUE"] * 3
    assert seen[9:13] == [72, "CUDA_SUCCESS", 8, "CUDA_ERROR_INVALID_CONTEXT"]
    assert seen[13] == 0, "one context then, one context now"
    assert node.book()[0]["used_bytes"] == 0
    assert node.book()[0]["peak_bytes"] >= CONTEXT_BYTES + 80 * MIB
