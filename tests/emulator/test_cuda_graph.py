"""Graphs: built by hand, captured from streams, launched, updated; and the calls that a capture forbids."""

from tests.emulator.cuda_program import Node


def test_a_captured_graph_runs_as_often_as_it_is_launched(node: Node) -> None:
    """Capturing runs nothing; each launch runs every kernel, fork and join included."""
    seen = node.python("captures.launch_often")
    assert seen == ["CUDA_SUCCESS", 3, 1, 0, 9, True]
    assert 250_000_000 <= node.book()[0]["busy_ns"] < 260_000_000


def test_a_graph_built_by_hand_runs_in_the_order_of_its_edges(node: Node) -> None:
    """Nodes run after the nodes they depend on, in whatever order they were added; cycles are refused."""
    seen = node.python("graphs.edges")
    assert seen == [[2, 1, 0], "CUDA_ERROR_INVALID_VALUE"]


def test_a_kernel_node_can_be_changed_after_instantiation(node: Node) -> None:
    """Setting a kernel node's parameters in the executable graph changes its next launch, not the graph."""
    node.python("graphs.change_kernel")
    assert node.book()[0]["busy_ns"] == 100_000_000


def test_a_global_capture_forbids_unsafe_calls(node: Node) -> None:
    """Allocating or synchronising fails during a global capture and spoils it; relaxed mode allows allocations."""
    seen = node.python("captures.unsafe_calls")
    spoilt = ["CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"]
    fine = ["CUDA_SUCCESS", "CUDA_SUCCESS"]
    assert seen == [spoilt, spoilt, spoilt, fine, fine]


def test_captures_end_only_as_the_driver_allows(node: Node) -> None:
    """Unjoined work, the wrong stream, no capture, and the legacy stream each give the driver's own error."""
    seen = node.python("captures.wrong_ends")
    assert seen == [
        "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
        "CUDA_ERROR_ILLEGAL_STATE",
        "CUDA_ERROR_CAPTURED_EVENT",
        "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED",
        "CUDA_ERROR_STREAM_CAPTURE_UNJOINED",
        "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
        "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
        0,
    ]


def test_generic_nodes_are_the_same_nodes(node: Node) -> None:
    """`cuGraphAddNode` adds the same node as the call of the node's own type, and edges can be read back."""
    seen = node.python("graphs.generic_nodes")
    assert seen == [1, True, True, 5, True, "CUDA_ERROR_NOT_SUPPORTED"]
    assert node.book()[0]["busy_ns"] == 5_000_000
