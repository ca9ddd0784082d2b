"""Memory that graphs allocate."""

import ctypes
import threading
from ctypes import byref, c_uint64, c_void_p

from tests.programs.cuda import GIB, HOST, MIB, PTR, SIZE, U64, cuda, show
from tests.programs.structures import Host, Location, NodeProps, PoolProps


def params(size: int, device: int = 0) -> NodeProps:
    return NodeProps(PoolProps(1, 0, Location(1, device)), None, 0, size)


def allocate(graph: c_void_p, size: int, device: int = 0) -> tuple[c_void_p, c_uint64]:
    made = params(size, device)
    node = cuda.make("cuGraphAddMemAllocNode", graph, None, SIZE(0), byref(made))
    return node, U64(made.address)


def free(graph: c_void_p, node: c_void_p, address: c_uint64) -> c_void_p:
    return cuda.make("cuGraphAddMemFreeNode", graph, byref(node), SIZE(1), address)


def instance(graph: c_void_p, flags: int = 0) -> c_void_p:
    return cuda.make("cuGraphInstantiateWithFlags", graph, U64(flags))


def pair(size: int) -> c_void_p:
    graph = cuda.make("cuGraphCreate", 0)
    free(graph, *allocate(graph, size))
    return graph


def figures(device: int = 0) -> list[int]:
    value = U64()
    seen = []
    for attribute in range(4):
        cuda.cuDeviceGetGraphMemAttribute(device, attribute, byref(value))
        seen.append(value.value // MIB)
    return seen


def held() -> int:
    return (full - cuda.info()[0]) // MIB


cuda.context()
full = cuda.info()[0]
one, other = cuda.make("cuStreamCreate", 1), cuda.make("cuStreamCreate", 1)


def captured() -> object:
    address = U64()
    seen = []
    cuda.cuStreamBeginCapture_v2(one, 0)
    cuda.cuMemAllocAsync(byref(address), SIZE(64 * MIB), one)
    cuda.cuMemsetD8Async(address, 1, SIZE(64 * MIB), one)
    cuda.cuMemFreeAsync(address, one)
    graph = PTR()
    cuda.cuStreamEndCapture(one, byref(graph))
    seen.append(held())
    executable = instance(graph)
    seen.append(held())
    for _ in range(3):
        cuda.cuGraphLaunch(executable, one)
    cuda.cuStreamSynchronize(one)
    seen.append(held())
    cuda.cuGraphExecDestroy(executable)
    cuda.cuGraphDestroy(graph)
    cuda.cuCtxSynchronize()
    seen += [held(), *figures()]
    cuda.cuDeviceGraphMemTrim(0)
    return [*seen, held(), cuda.result("cuMemFree_v2", address)]


def left_allocated() -> object:
    graph = cuda.make("cuGraphCreate", 0)
    _, address = allocate(graph, 32 * MIB)
    executable = instance(graph)
    seen: list[object] = [cuda.result("cuMemFree_v2", address)]
    cuda.cuGraphLaunch(executable, one)
    cuda.cuMemsetD8_v2(address, 7, SIZE(32 * MIB))
    seen.append(cuda.result("cuGraphLaunch", executable, one))
    cuda.cuMemFreeAsync(address, one)
    seen += [cuda.result("cuGraphLaunch", executable, one)]
    cuda.cuGraphExecDestroy(executable)
    cuda.cuGraphDestroy(graph)
    cuda.cuCtxSynchronize()
    cuda.cuDeviceGraphMemTrim(0)
    seen.append(held())
    back = (ctypes.c_ubyte * 1)()
    cuda.cuMemcpyDtoH_v2(back, address, SIZE(1))
    seen += [back[0], cuda.result("cuMemFree_v2", address), held(), figures()[0]]
    cuda.cuDeviceGraphMemTrim(0)
    return [*seen, held(), cuda.result("cuMemFree_v2", address)]


def free_elsewhere() -> object:
    graph, freeing = cuda.make("cuGraphCreate", 0), cuda.make("cuGraphCreate", 0)
    _, address = allocate(graph, 32 * MIB)
    executable = instance(graph, 1)
    for _ in range(3):
        cuda.cuGraphLaunch(executable, one)
    seen: list[object] = [held()]
    cuda.make("cuGraphAddMemFreeNode", freeing, None, SIZE(0), address)
    cuda.cuGraphLaunch(instance(freeing), one)
    seen.append(cuda.result("cuMemFree_v2", address))
    cuda.cuStreamSynchronize(one)
    cuda.cuDeviceGraphMemTrim(0)
    return [*seen, held(), figures()]


def shared() -> object:
    gate = threading.Event()
    wait = HOST(lambda _: gate.wait())
    first, second, larger = pair(64 * MIB), pair(64 * MIB), pair(96 * MIB)
    host = Host(ctypes.cast(wait, PTR), None)
    cuda.make("cuGraphAddHostNode", first, None, SIZE(0), byref(host))
    running = instance(first)
    cuda.cuGraphUpload(running, one)
    seen: list[object] = [figures()]
    cuda.cuGraphLaunch(running, one)
    cuda.cuGraphLaunch(instance(second), one)
    seen.append(figures())
    cuda.cuGraphLaunch(instance(larger), other)
    seen.append(figures())
    cuda.cuDeviceGraphMemTrim(0)
    seen.append(figures()[2])
    gate.set()
    cuda.cuCtxSynchronize()
    for attribute in (1, 3):
        cuda.cuDeviceSetGraphMemAttribute(0, attribute, byref(U64(0)))
    cuda.cuDeviceGraphMemTrim(0)
    seen.append(figures())
    return [
        *seen,
        cuda.result("cuDeviceSetGraphMemAttribute", 0, 1, byref(U64(1))),
        cuda.result("cuDeviceSetGraphMemAttribute", 0, 0, byref(U64(0))),
    ]


def without_room() -> object:
    executable = instance(pair(9 * GIB))
    seen = [
        cuda.result("cuGraphLaunch", executable, one),
        cuda.result("cuGraphUpload", executable, one),
        held(),
    ]
    graph = cuda.make("cuGraphCreate", 0)
    free(graph, *allocate(graph, GIB, 1))
    cuda.cuGraphLaunch(instance(graph), one)
    cuda.cuStreamSynchronize(one)
    return [*seen, held(), figures(1)[2]]


def restrictions() -> object:
    graph, parent, made = pair(MIB), cuda.make("cuGraphCreate", 0), PTR()
    node, address = allocate(graph, MIB)
    executable, info = instance(graph), (U64 * 3)()
    seen = [
        cuda.result("cuGraphClone", byref(made), graph),
        cuda.result("cuGraphAddChildGraphNode", byref(made), parent, None, SIZE(0), graph),
        cuda.result("cuGraphDestroyNode", node),
        cuda.result("cuGraphInstantiateWithFlags", byref(made), graph, U64(0)),
        cuda.result("cuGraphExecUpdate_v2", executable, graph, info),
    ]
    free(graph, node, address)
    seen += [
        cuda.result("cuGraphAddMemFreeNode", byref(made), graph, byref(node), SIZE(1), address),
        cuda.result("cuGraphAddMemFreeNode", byref(made), graph, None, SIZE(0), cuda.alloc(MIB)),
    ]
    back = NodeProps()
    cuda.cuGraphMemAllocNodeGetParams(node, byref(back))
    cuda.cuGraphExecDestroy(executable)
    instance(graph)
    bad = params(MIB)
    bad.pool.location.type = 2
    seen += [
        back.address == address.value,
        back.size == MIB,
        back.pool.location.id,
        cuda.result("cuGraphAddMemAllocNode", byref(made), parent, None, SIZE(0), byref(bad)),
    ]
    cuda.cuStreamBeginCapture_v2(one, 2)
    seen.append(cuda.result("cuMemFreeAsync", cuda.alloc(MIB), one))
    return seen


def leave_allocated() -> None:
    graph = cuda.make("cuGraphCreate", 0)
    allocate(graph, 64 * MIB)
    cuda.cuGraphLaunch(instance(graph), one)


def reset() -> object:
    leave_allocated()
    cuda.cuDevicePrimaryCtxReset_v2(0)
    cuda.context()
    return held()


def keep() -> None:
    leave_allocated()
    show(1)
    input()
