"""All ways to give the device work run, take device time, and move their data."""

from tests.emulator.cuda_program import Node


def test_every_fill_fills(node: Node) -> None:
    """Rows and boxes are filled with bytes, words and double words, at once and in a stream of either default."""
    seen = node.python("launch_paths.fills")
    assert seen == []


def test_every_copy_on_the_device_copies(node: Node) -> None:
    """Lines, boxes, arrays, peers and batches, at once and in a stream, under either default stream."""
    seen = node.python("launch_paths.copies")
    assert seen == []


def test_a_batch_of_copies_runs_whole_or_not_at_all(node: Node) -> None:
    """All copies of a batch run in their stream. If one is malformed it is named, and none runs."""
    seen = node.python("launch_paths.batch")
    invalid, nothing = "CUDA_ERROR_INVALID_VALUE", [0] * 20
    assert seen[:2] == [["CUDA_SUCCESS", True], [7, 7] + [0] * 6 + [7] * 4 + [0] * 4 + list(b"host")]
    assert seen[2:6] == [[invalid, True], ["CUDA_SUCCESS", True], [invalid, 1], nothing]
    assert seen[6:] == ["CUDA_SUCCESS", [7, 7, 0, 0, 0, 0, 0, 0, 7, 7, 0, 0], [invalid, 0]]


def test_kernels_launch_in_the_oldest_ways(node: Node) -> None:
    """A function keeps its blocks' shape and its parameters, and cannot launch without a shape."""
    seen = node.python("launch_paths.oldest_ways")
    assert seen == ["CUDA_ERROR_INVALID_VALUE"] * 3
    assert node.book()[0]["busy_ns"] == 70_010_000


def test_a_cooperative_launch_runs_on_each_device(node: Node) -> None:
    """One launch over two devices takes its time on both."""
    node.python("calls.launch_on_each_device")
    assert [gpu["busy_ns"] for gpu in node.book()] == [20_000_000, 20_000_000]


def test_a_stream_waits_on_the_device_for_what_is_launched_later(node: Node) -> None:
    """A stream's work behind a wait for a word runs once another stream has written it, after earlier work there."""
    seen = node.python("launch_paths.wait_for_later")
    assert seen[0] == [[], "CUDA_ERROR_NOT_READY"]
    assert seen[1] in ([2, 0, 3, 1], [2, 3, 0, 1])
    assert seen[2:] == [
        "CUDA_ERROR_INVALID_VALUE",
        "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
        "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
    ]


def test_an_executable_graphs_nodes_change_between_its_launches(node: Node) -> None:
    """Kernel, fill, event and child graph take new parameters, in the executable graph or in the graph itself."""
    seen = node.python("launch_paths.change_nodes")
    good, never = "CUDA_SUCCESS", "CUDA_ERROR_INVALID_HANDLE"
    in_executable, in_graph = seen[:5], seen[5:]
    assert in_executable == [[1], never, [good] * 4, [2], good]
    assert in_graph == [True, "CUDA_ERROR_INVALID_CONTEXT", [3], "CUDA_ERROR_INVALID_VALUE"]
    assert 90_000_000 <= node.book()[0]["busy_ns"] < 90_150_000
