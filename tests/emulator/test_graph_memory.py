"""Memory that graphs allocate: when it is taken, shared, kept and freed."""

from tests.emulator.cuda_program import MIB, Node

GRAPHS = """
class Props(ctypes.Structure):
    _fields_ = [("type", INT), ("handles", INT), ("where", INT), ("id", INT), ("security", PTR),
                ("most", SIZE), ("usage", ctypes.c_ushort), ("rest", ctypes.c_ubyte * 54)]
class Allocation(ctypes.Structure):
    _fields_ = [("props", Props), ("descs", PTR), ("count", SIZE), ("size", SIZE), ("address", U64)]
def params(size, device=0):
    return Allocation(Props(1, 0, 1, device), None, 0, size)
def allocate(graph, size, device=0):
    made = params(size, device)
    node = cuda.make("cuGraphAddMemAllocNode", graph, None, SIZE(0), byref(made))
    return node, U64(made.address)
def free(graph, node, address):
    return cuda.make("cuGraphAddMemFreeNode", graph, byref(node), SIZE(1), address)
def instance(graph, flags=0):
    return cuda.make("cuGraphInstantiateWithFlags", graph, U64(flags))
def pair(size):
    graph = cuda.make("cuGraphCreate", 0)
    free(graph, *allocate(graph, size))
    return graph
def figures(device=0):
    value, seen = U64(), []
    for attribute in range(4):
        cuda.cuDeviceGetGraphMemAttribute(device, attribute, byref(value))
        seen.append(value.value // MIB)
    return seen
def held():
    return (full - cuda.info()[0]) // MIB
cuda.context()
full = cuda.info()[0]
one, other = cuda.make("cuStreamCreate", 1), cuda.make("cuStreamCreate", 1)
"""


def test_a_captured_allocation_is_taken_at_the_launch_and_kept_until_a_trim(node: Node) -> None:
    """Capturing takes nothing, and memory taken by a launch survives the free and the ends of both graphs."""
    seen = node.python(
        GRAPHS
        + """
address, seen = U64(), []
cuda.cuStreamBeginCapture_v2(one, 0)
cuda.cuMemAllocAsync(byref(address), SIZE(64 * MIB), one)
cuda.cuMemsetD8Async(address, 1, SIZE(64 * MIB), one)
cuda.cuMemFreeAsync(address, one)
graph = PTR()
cuda.cuStreamEndCapture(one, byref(graph))
seen.append(held())
executable = instance(graph); seen.append(held())
for _ in range(3): cuda.cuGraphLaunch(executable, one)
cuda.cuStreamSynchronize(one); seen.append(held())
cuda.cuGraphExecDestroy(executable); cuda.cuGraphDestroy(graph); cuda.cuCtxSynchronize()
seen += [held(), *figures()]
cuda.cuDeviceGraphMemTrim(0)
show([*seen, held(), cuda.result("cuMemFree_v2", address)])
"""
    )
    assert seen == [0, 0, 64, 64, 0, 64, 64, 64, 0, "CUDA_ERROR_INVALID_VALUE"]


def test_what_a_graph_leaves_allocated_lives_until_it_is_freed(node: Node) -> None:
    """Memory left allocated is not destroyed with its graph and not trimmed, and blocks a second launch."""
    seen = node.python(
        GRAPHS
        + """
graph = cuda.make("cuGraphCreate", 0)
_, address = allocate(graph, 32 * MIB)
executable = instance(graph)
seen = [cuda.result("cuMemFree_v2", address)]
cuda.cuGraphLaunch(executable, one)
cuda.cuMemsetD8_v2(address, 7, SIZE(32 * MIB))
seen.append(cuda.result("cuGraphLaunch", executable, one))
cuda.cuMemFreeAsync(address, one)
seen += [cuda.result("cuGraphLaunch", executable, one)]
cuda.cuGraphExecDestroy(executable); cuda.cuGraphDestroy(graph)
cuda.cuCtxSynchronize()
cuda.cuDeviceGraphMemTrim(0)
seen.append(held())
back = (ctypes.c_ubyte * 1)()
cuda.cuMemcpyDtoH_v2(back, address, SIZE(1))
seen += [back[0], cuda.result("cuMemFree_v2", address), held(), figures()[0]]
cuda.cuDeviceGraphMemTrim(0)
show([*seen, held(), cuda.result("cuMemFree_v2", address)])
"""
    )
    refused, fine = "CUDA_ERROR_INVALID_VALUE", "CUDA_SUCCESS"
    assert seen == [refused, refused, fine, 32, 7, fine, 32, 0, 0, refused]


def test_a_graph_may_free_on_launch_or_in_another_graph(node: Node) -> None:
    """With the flag a relaunch frees the left memory, and a free node ends another graph's allocation."""
    seen = node.python(
        GRAPHS
        + """
graph, freeing = cuda.make("cuGraphCreate", 0), cuda.make("cuGraphCreate", 0)
_, address = allocate(graph, 32 * MIB)
executable = instance(graph, 1)
for _ in range(3): cuda.cuGraphLaunch(executable, one)
seen = [held()]
cuda.make("cuGraphAddMemFreeNode", freeing, None, SIZE(0), address)
cuda.cuGraphLaunch(instance(freeing), one)
seen.append(cuda.result("cuMemFree_v2", address))
cuda.cuStreamSynchronize(one)
cuda.cuDeviceGraphMemTrim(0)
show([*seen, held(), figures()])
"""
    )
    assert seen == [32, "CUDA_ERROR_INVALID_VALUE", 0, [0, 32, 0, 32]]


def test_graphs_share_what_they_do_not_use_at_once(node: Node) -> None:
    """Graphs of one stream map the same memory. Graphs on streams that run side by side need memory of their own."""
    seen = node.python(
        GRAPHS
        + """
class Host(ctypes.Structure):
    _fields_ = [("fn", PTR), ("data", PTR)]
HOST = ctypes.CFUNCTYPE(None, PTR)
gate = threading.Event()
wait = HOST(lambda _: gate.wait() and None)
first, second, larger = pair(64 * MIB), pair(64 * MIB), pair(96 * MIB)
params = Host(ctypes.cast(wait, PTR), None)
cuda.make("cuGraphAddHostNode", first, None, SIZE(0), byref(params))
running = instance(first)
cuda.cuGraphUpload(running, one); seen = [figures()]
cuda.cuGraphLaunch(running, one)
cuda.cuGraphLaunch(instance(second), one); seen.append(figures())
cuda.cuGraphLaunch(instance(larger), other); seen.append(figures())
cuda.cuDeviceGraphMemTrim(0); seen.append(figures()[2])
gate.set(); cuda.cuCtxSynchronize()
for attribute in (1, 3): cuda.cuDeviceSetGraphMemAttribute(0, attribute, byref(U64(0)))
cuda.cuDeviceGraphMemTrim(0); seen.append(figures())
show([*seen, cuda.result("cuDeviceSetGraphMemAttribute", 0, 1, byref(U64(1))),
      cuda.result("cuDeviceSetGraphMemAttribute", 0, 0, byref(U64(0)))])
"""
    )
    assert seen[:2] == [[64, 64, 64, 64], [64, 64, 64, 64]]
    assert seen[2] == [160, 160, 160, 160]
    assert seen[3] == 64, "the one that waits for its host function keeps its memory"
    assert seen[4] == [0, 64, 0, 64]
    assert seen[5:] == ["CUDA_ERROR_INVALID_VALUE"] * 2


def test_a_launch_without_room_fails_and_takes_nothing(node: Node) -> None:
    """Making and instantiating a graph costs nothing, and its launch and its upload are out of memory."""
    seen = node.python(
        GRAPHS
        + """
executable = instance(pair(9 * GIB))
seen = [cuda.result("cuGraphLaunch", executable, one), cuda.result("cuGraphUpload", executable, one), held()]
graph = cuda.make("cuGraphCreate", 0)
free(graph, *allocate(graph, GIB, 1))
cuda.cuGraphLaunch(instance(graph), one); cuda.cuStreamSynchronize(one)
show([*seen, held(), figures(1)[2]])
"""
    )
    out = "CUDA_ERROR_OUT_OF_MEMORY"
    assert seen == [out, out, 0, 0, 1024]


def test_graphs_with_memory_are_restricted(node: Node) -> None:
    """A graph with memory cannot be cloned, nested, instantiated twice or updated.

    It frees no memory twice and none of others.
    """
    seen = node.python(
        GRAPHS
        + """
graph, parent, made = pair(MIB), cuda.make("cuGraphCreate", 0), PTR()
node, address = allocate(graph, MIB)
executable, info = instance(graph), (U64 * 3)()
seen = [cuda.result("cuGraphClone", byref(made), graph),
        cuda.result("cuGraphAddChildGraphNode", byref(made), parent, None, SIZE(0), graph),
        cuda.result("cuGraphDestroyNode", node),
        cuda.result("cuGraphInstantiateWithFlags", byref(made), graph, U64(0)),
        cuda.result("cuGraphExecUpdate_v2", executable, graph, info)]
free(graph, node, address)
seen += [cuda.result("cuGraphAddMemFreeNode", byref(made), graph, byref(node), SIZE(1), address),
         cuda.result("cuGraphAddMemFreeNode", byref(made), graph, None, SIZE(0), cuda.alloc(MIB))]
back = Allocation(); where = U64()
cuda.cuGraphMemAllocNodeGetParams(node, byref(back))
cuda.cuGraphExecDestroy(executable)
instance(graph)
bad = params(MIB); bad.props.where = 2
seen += [back.address == address.value, back.size == MIB, back.props.id,
         cuda.result("cuGraphAddMemAllocNode", byref(made), parent, None, SIZE(0), byref(bad))]
cuda.cuStreamBeginCapture_v2(one, 2)
seen.append(cuda.result("cuMemFreeAsync", cuda.alloc(MIB), one))
show(seen)
"""
    )
    unsupported, invalid = "CUDA_ERROR_NOT_SUPPORTED", "CUDA_ERROR_INVALID_VALUE"
    assert seen[:5] == [unsupported] * 3 + [invalid, "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE"]
    assert seen[5:] == [invalid, invalid, True, True, 0, invalid, invalid]


def test_graph_memory_goes_with_the_last_context_and_with_the_process(node: Node) -> None:
    """A reset of the primary context frees live allocations too, and a kill leaves nothing."""
    program = (
        GRAPHS
        + """
graph = cuda.make("cuGraphCreate", 0)
allocate(graph, 64 * MIB)
cuda.cuGraphLaunch(instance(graph), one)
"""
    )
    assert node.python(program + "cuda.cuDevicePrimaryCtxReset_v2(0); cuda.context(); show(held())") == 0
    with node.background(program + "show(1); time.sleep(600)") as holder:
        process = node.book()[0]["processes"][0]
        assert (process["graph_bytes"], process["used_bytes"] >= 64 * MIB) == (64 * MIB, True)
        holder.kill()
    assert node.used_bytes() == 0
