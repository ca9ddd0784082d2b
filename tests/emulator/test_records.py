"""Event records are commands: a process reaches them in its own slices of the GPU."""

import pytest

from tests.emulator.cuda_program import NODE, Node
from tests.emulator.test_spinning import HOG, running

SLICE_MS = 300


@pytest.fixture
def slow_node(node: Node) -> Node:
    """A node whose slices are so long that no delay of a test is taken for one."""
    node.config.write_text(f"slice = {SLICE_MS}ms\n{NODE}")
    return node


def test_a_record_is_reached_in_its_processs_next_slice(slow_node: Node) -> None:
    """Beside two processes that always work, an idle stream's record waits until both had their slices."""
    with running(slow_node, HOG, HOG):
        gap_ms = slow_node.python("records.next_slice")
    assert gap_ms[0] == "CUDA_ERROR_NOT_READY"
    assert gap_ms[1] >= 2 * SLICE_MS - 1


def test_a_record_does_not_queue_behind_other_streams(slow_node: Node) -> None:
    """A process with an hour of work in one stream reaches a record in another at its next slice."""
    with running(slow_node, HOG):
        shown = slow_node.python("records.beside_a_stream")
    assert shown == ["CUDA_SUCCESS", "CUDA_ERROR_NOT_READY"]


def test_what_follows_a_record_waits_for_its_slice(slow_node: Node) -> None:
    """A kernel, and another stream's wait, come after the record before them."""
    with running(slow_node, HOG, HOG):
        gaps_ms = slow_node.python("records.after_a_record")
    assert gaps_ms == pytest.approx([0, 10, 10], abs=0.01)


def test_a_record_is_reached_at_once_where_nobody_works(slow_node: Node) -> None:
    """Without other work on the GPU a record in an idle stream is reached at once, and does not count as work."""
    shown = slow_node.python("records.alone")
    assert shown == "CUDA_SUCCESS"
    assert slow_node.book()[0]["busy_ns"] == 0
