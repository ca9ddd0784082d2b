"""Private driver functions, as NVIDIA's runtime may use them, which a preloaded library cannot see."""

import pytest

from tests.emulator.cuda_program import CONTEXT_BYTES, NODE, Node


def test_a_primary_context_is_made_and_reset_privately(node: Node) -> None:
    """The private functions have the effect of the public ones, on the same context."""
    active, same, after = node.python("private_ways.retain_and_reset")
    assert (active, same, after) == (1, True, "CUDA_ERROR_CONTEXT_IS_DESTROYED")
    assert node.book()[0]["peak_bytes"] == CONTEXT_BYTES + (2 << 20)


def test_every_context_has_an_id_of_its_own(node: Node) -> None:
    """No context id is used twice in a program's life, not even after a reset of the primary context."""
    ids = node.python("private_ways.context_ids")
    assert len(set(ids)) == len(ids) == 6


@pytest.mark.parametrize("private", ["yes", "no"])
def test_functions_have_private_addresses_where_the_node_says_so(node: Node, private: str) -> None:
    """If the node says so, each looked-up function works at an address of its own, which is not its export's."""
    node.config.write_text(f"private-addresses = {private}\n{NODE}")
    exported, distinct, free = node.python("private_ways.addresses")
    assert exported == (0 if private == "yes" else distinct)
    assert distinct >= 11
    assert free == 364
