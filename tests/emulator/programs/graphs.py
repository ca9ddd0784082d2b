"""Graphs built by hand."""

import ctypes
from ctypes import byref

from tests.programs.cuda import HOST, INT, PTR, SHAPE, SIZE, U64, cuda, parameters
from tests.programs.structures import Host, Kernel


def edges() -> object:
    order: list[int] = []
    says = [HOST(lambda _, i=i: order.append(i)) for i in range(3)]
    cuda.context()
    graph = cuda.make("cuGraphCreate", 0)
    nodes = []
    for say in says:
        params = Host(ctypes.cast(say, PTR), None)
        nodes.append(cuda.make("cuGraphAddHostNode", graph, None, SIZE(0), byref(params)))
    pairs = [byref(PTR(node.value)) for node in nodes]
    cuda.cuGraphAddDependencies(graph, pairs[2], pairs[1], SIZE(1))
    cuda.cuGraphAddDependencies(graph, pairs[1], pairs[0], SIZE(1))
    executable = cuda.make("cuGraphInstantiateWithFlags", graph, U64(0))
    cuda.cuGraphLaunch(executable, None)
    cuda.cuCtxSynchronize()
    cuda.cuGraphAddDependencies(graph, pairs[0], pairs[2], SIZE(1))
    cycle = PTR()
    return [order, cuda.result("cuGraphInstantiateWithFlags", byref(cycle), graph, U64(0))]


def change_kernel() -> None:
    cuda.context()
    kernel = cuda.kernel()

    short, long = parameters(10_000_000), parameters(40_000_000)
    first, then = (Kernel(kernel, SHAPE, 0, ctypes.addressof(pointers)) for pointers in (short, long))
    graph = cuda.make("cuGraphCreate", 0)
    node = cuda.make("cuGraphAddKernelNode_v2", graph, None, SIZE(0), byref(first))
    executable = cuda.make("cuGraphInstantiateWithFlags", graph, U64(0))
    cuda.cuGraphLaunch(executable, None)
    cuda.cuGraphExecKernelNodeSetParams_v2(executable, node, byref(then))
    for _ in range(2):
        cuda.cuGraphLaunch(executable, None)
    again = cuda.make("cuGraphInstantiateWithFlags", graph, U64(0))
    cuda.cuGraphLaunch(again, None)
    cuda.cuCtxSynchronize()


def generic_nodes() -> object:
    class Params(ctypes.Structure):
        _fields_ = [("type", INT), ("reserved", INT * 3), ("kernel", Kernel), ("rest", U64 * 40)]

    cuda.context()
    kernel = cuda.kernel()
    pointers = parameters(5_000_000)
    launch = Kernel(kernel, SHAPE, 0, ctypes.addressof(pointers))
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
    return [count.value, *ends, kind.value, edge.raw == bytes(8), odd]
