"""Graphs: built by hand, captured from streams, launched, updated; and the calls that a capture forbids."""

from tests.emulator.cuda_program import Node

CAPTURE = """
cuda.context(); kernel = cuda.kernel()
one, other = cuda.make("cuStreamCreate", 1), cuda.make("cuStreamCreate", 1)
fork, joined = cuda.make("cuEventCreate", 2), cuda.make("cuEventCreate", 2)
def end(stream):
    graph = PTR()
    return cuda.result("cuStreamEndCapture", stream, byref(graph)), graph
def count(graph, function="cuGraphGetNodes"):
    number = SIZE()
    getattr(cuda, function)(graph, None, byref(number))
    return number.value
"""


def test_a_captured_graph_runs_as_often_as_it_is_launched(node: Node) -> None:
    """Capturing runs nothing; each launch runs every kernel, fork and join included."""
    seen = node.python(
        CAPTURE
        + """
address, value = cuda.alloc(64), UINT()
cuda.cuStreamBeginCapture_v2(one, 0)
cuda.cuMemsetD32Async(address, 9, SIZE(16), one)
cuda.busy(kernel, 20, one)
cuda.cuEventRecord(fork, one)
cuda.cuStreamWaitEvent(other, fork, 0)
cuda.busy(kernel, 30, other)
cuda.cuEventRecord(joined, other)
cuda.cuStreamWaitEvent(one, joined, 0)
result, graph = end(one)
nodes, roots = count(graph), count(graph, "cuGraphGetRootNodes")
cuda.cuMemcpyDtoH_v2(byref(value), address, SIZE(4)); before = value.value
executable = cuda.make("cuGraphInstantiateWithFlags", graph, U64(0))
start = time.monotonic()
for _ in range(5): cuda.cuGraphLaunch(executable, one)
cuda.cuStreamSynchronize(one)
elapsed = time.monotonic() - start
cuda.cuMemcpyDtoH_v2(byref(value), address, SIZE(4))
cuda.cuGraphExecDestroy(executable); cuda.cuGraphDestroy(graph)
show([result, nodes, roots, before, value.value, elapsed >= 0.25])
"""
    )
    assert seen == ["CUDA_SUCCESS", 3, 1, 0, 9, True]
    assert 250_000_000 <= node.book()[0]["busy_ns"] < 260_000_000


def test_a_graph_built_by_hand_runs_in_the_order_of_its_edges(node: Node) -> None:
    """Nodes run after the nodes they depend on, in whatever order they were added; cycles are refused."""
    seen = node.python("""
        class Host(ctypes.Structure):
            _fields_ = [("fn", PTR), ("data", PTR)]
        HOST = ctypes.CFUNCTYPE(None, PTR)
        order = []
        says = [HOST(lambda _, i=i: order.append(i)) for i in range(3)]
        cuda.context()
        graph = cuda.make("cuGraphCreate", 0)
        nodes = []
        for say in says:
            params = Host(ctypes.cast(say, PTR), None)
            nodes.append(cuda.make("cuGraphAddHostNode", graph, None, SIZE(0), byref(params)))
        pair = lambda node: byref(PTR(node.value))
        cuda.cuGraphAddDependencies(graph, pair(nodes[2]), pair(nodes[1]), SIZE(1))
        cuda.cuGraphAddDependencies(graph, pair(nodes[1]), pair(nodes[0]), SIZE(1))
        executable = cuda.make("cuGraphInstantiateWithFlags", graph, U64(0))
        cuda.cuGraphLaunch(executable, None)
        cuda.cuCtxSynchronize()
        cuda.cuGraphAddDependencies(graph, pair(nodes[0]), pair(nodes[2]), SIZE(1))
        cycle = PTR()
        show([order, cuda.result("cuGraphInstantiateWithFlags", byref(cycle), graph, U64(0))])
    """)
    assert seen == [[2, 1, 0], "CUDA_ERROR_INVALID_VALUE"]


def test_a_kernel_node_can_be_changed_after_instantiation(node: Node) -> None:
    """Setting a kernel node's parameters in the executable graph changes its next launch, not the graph."""
    node.python("""
        class Kernel(ctypes.Structure):
            _fields_ = [("func", PTR), ("shape", UINT * 6), ("shared", UINT), ("params", PTR), ("extra", PTR),
                        ("kern", PTR), ("ctx", PTR)]
        cuda.context(); kernel = cuda.kernel()
        def params(ms):
            length = U64(int(ms * 1e6)); pointers = (PTR * 1)(ctypes.addressof(length))
            made = Kernel(kernel, (UINT * 6)(1, 1, 1, 1, 1, 1), 0, ctypes.addressof(pointers))
            made.keep = length, pointers
            return made
        graph = cuda.make("cuGraphCreate", 0)
        node = cuda.make("cuGraphAddKernelNode_v2", graph, None, SIZE(0), byref(params(10)))
        executable = cuda.make("cuGraphInstantiateWithFlags", graph, U64(0))
        cuda.cuGraphLaunch(executable, None)
        cuda.cuGraphExecKernelNodeSetParams_v2(executable, node, byref(params(40)))
        for _ in range(2): cuda.cuGraphLaunch(executable, None)
        again = cuda.make("cuGraphInstantiateWithFlags", graph, U64(0))
        cuda.cuGraphLaunch(again, None)
        cuda.cuCtxSynchronize()
        show(1)
    """)
    assert node.book()[0]["busy_ns"] == 100_000_000


def test_a_global_capture_forbids_unsafe_calls(node: Node) -> None:
    """Allocating or synchronising fails during a global capture and spoils it; relaxed mode allows both."""
    seen = node.python(
        CAPTURE
        + """
address, mode, seen = U64(), INT(2), []
for call in [("cuMemAlloc_v2", byref(address), SIZE(4096)), ("cuCtxSynchronize",), ("cuStreamSynchronize", one)]:
    cuda.cuStreamBeginCapture_v2(one, 0)
    seen.append([cuda.result(*call), end(one)[0]])
cuda.cuStreamBeginCapture_v2(one, 0)
cuda.cuThreadExchangeStreamCaptureMode(byref(mode))
seen.append([cuda.result("cuMemAlloc_v2", byref(address), SIZE(4096)), end(one)[0]])
cuda.cuThreadExchangeStreamCaptureMode(byref(mode))
cuda.cuStreamBeginCapture_v2(one, 1)
results = []
thread = threading.Thread(target=lambda: (
    cuda.context(), results.append(cuda.result("cuMemAlloc_v2", byref(address), SIZE(4096)))))
thread.start(); thread.join()
seen.append(results + [end(one)[0]])
show(seen)
"""
    )
    spoilt = ["CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"]
    fine = ["CUDA_SUCCESS", "CUDA_SUCCESS"]
    assert seen == [spoilt, spoilt, spoilt, fine, fine]


def test_captures_end_only_as_the_driver_allows(node: Node) -> None:
    """Unjoined work, the wrong stream, no capture, and the legacy stream each give the driver's own error."""
    seen = node.python(
        CAPTURE
        + """
seen = [cuda.result("cuStreamBeginCapture_v2", None, 0), end(one)[0]]
cuda.cuStreamBeginCapture_v2(one, 0)
cuda.cuEventRecord(fork, one); cuda.cuStreamWaitEvent(other, fork, 0)
seen.append(cuda.result("cuEventQuery", fork))
seen.append(end(other)[0])
cuda.busy(kernel, 1, other)
seen.append(end(one)[0])
blocking = cuda.make("cuStreamCreate", 0)
cuda.cuStreamBeginCapture_v2(blocking, 0)
length = U64(1000); params = (PTR * 1)(ctypes.addressof(length))
seen.append(cuda.result("cuLaunchKernel", kernel, 1, 1, 1, 1, 1, 1, 0, None, params, None))
seen.append(end(blocking)[0])
status = INT()
cuda.cuStreamIsCapturing(one, byref(status))
show(seen + [status.value])
"""
    )
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
    seen = node.python("""
        class Kernel(ctypes.Structure):
            _fields_ = [("func", PTR), ("shape", UINT * 6), ("shared", UINT), ("params", PTR), ("extra", PTR),
                        ("kern", PTR), ("ctx", PTR)]
        class Params(ctypes.Structure):
            _fields_ = [("type", INT), ("reserved", INT * 3), ("kernel", Kernel), ("rest", U64 * 40)]
        cuda.context(); kernel = cuda.kernel()
        length = U64(5_000_000); pointers = (PTR * 1)(ctypes.addressof(length))
        launch = Kernel(kernel, (UINT * 6)(1, 1, 1, 1, 1, 1), 0, ctypes.addressof(pointers))
        graph = cuda.make("cuGraphCreate", 0)
        first = cuda.make("cuGraphAddNode", graph, None, SIZE(0), byref(Params(0, (INT * 3)(), launch)))
        then = cuda.make("cuGraphAddNode_v2", graph, byref(first), None, SIZE(1), byref(Params(5)))
        start, end, count, kind = PTR(), PTR(), SIZE(1), INT(-1)
        edge = ctypes.create_string_buffer(b"x" * 8, 8)
        cuda.cuGraphGetEdges_v2(graph, byref(start), byref(end), edge, byref(count))
        cuda.cuGraphNodeGetType(then, byref(kind))
        cuda.cuGraphLaunch(cuda.make("cuGraphInstantiateWithFlags", graph, U64(0)), None)
        cuda.cuCtxSynchronize()
        odd = cuda.result("cuGraphAddNode", byref(PTR()), graph, None, SIZE(0), byref(Params(13)))
        ends = start.value == first.value, end.value == then.value
        show([count.value, *ends, kind.value, edge.raw == bytes(8), odd])
    """)
    assert seen == [1, True, True, 5, True, "CUDA_ERROR_NOT_SUPPORTED"]
    assert node.book()[0]["busy_ns"] == 5_000_000
