"""Every way of giving the device work, on two allocations and a stream."""

import ctypes
import time
from collections.abc import Iterator
from ctypes import byref, c_float, c_uint64, c_void_p
from typing import Any

from tests.programs.cuda import HOST, INT, PTR, SHAPE, SIZE, U64, UINT, cuda, parameters
from tests.programs.structures import (
    Attributes,
    Box,
    Corner,
    Flat,
    FlatForm,
    Kernel,
    Operand,
    Operation,
    Place,
    Side,
)

context = cuda.context()
kernel = cuda.kernel()
stream = cuda.make("cuStreamCreate", 1)
one, other = cuda.alloc(4096), cuda.alloc(4096)


def at(address: c_uint64, offset: int = 0) -> c_uint64:
    return U64(address.value + offset)


def read(address: c_uint64, count: int = 8) -> list[int]:
    cuda.cuCtxSynchronize()
    data = (ctypes.c_ubyte * count)()
    cuda.cuMemcpyDtoH_v2(data, address, SIZE(count))
    return list(data)


def clear() -> None:
    cuda.cuMemsetD8_v2(one, 0, SIZE(4096))
    cuda.cuMemsetD8_v2(other, 0, SIZE(4096))


def fills() -> object:
    values: dict[int, object] = {8: ctypes.c_ubyte(1), 16: ctypes.c_ushort(0x0201), 32: UINT(0x04030201)}

    def calls(bits: int) -> Iterator[tuple[str, tuple[object, ...]]]:
        n, v, pitch = SIZE(8 * 8 // bits), values[bits], SIZE(16)
        name = f"cuMemsetD{bits}"
        flat = f"cuMemsetD2D{bits}"
        yield from ((name + form, (one, v, n)) for form in ("_v2", "_v2_ptds"))
        yield from ((name + form, (one, v, n, stream)) for form in ("Async", "Async_ptsz"))
        yield from ((flat + form, (one, pitch, v, n, SIZE(2))) for form in ("_v2", "_v2_ptds"))
        yield from ((flat + form, (one, pitch, v, n, SIZE(2), stream)) for form in ("Async", "Async_ptsz"))

    wrong = []
    for bits in values:
        step = [1, 2, 3, 4][: bits // 8]
        for name, args in calls(bits):
            clear()
            getattr(cuda, name)(*args)
            rows = 2 if "2D" in name else 1
            if read(one, 32) != ((step * 8)[:8] + [0] * 8) * rows + [0] * 16 * (2 - rows):
                wrong.append(name)
    return wrong


def copies() -> object:
    arrays = [cuda.make("cuArrayCreate_v2", byref(FlatForm(64, 1, 1, 1))) for _ in range(2)]
    n = SIZE(8)
    flat = Flat(Side(type=2, device=one.value), Side(type=2, device=other.value), 8, 1)
    box = Box(
        Corner(type=2, device=one.value, context=context.value),
        Corner(type=2, device=other.value, context=context.value),
        8,
        1,
        1,
    )
    calls: list[tuple[Any, ...]] = []
    for form in ("", "_ptds"):
        calls += [
            ("cuMemcpy" + form, other, one, n),
            ("cuMemcpyDtoD_v2" + form, other, one, n),
            ("cuMemcpyPeer" + form, other, context, one, context, n),
            ("cuMemcpy2D_v2" + form, byref(flat)),
            ("cuMemcpy2DUnaligned_v2" + form, byref(flat)),
            ("cuMemcpy3D_v2" + form, byref(box)),
            ("cuMemcpy3DPeer" + form, byref(box)),
        ]
    for form in ("", "_ptsz"):
        calls += [
            ("cuMemcpyAsync" + form, other, one, n, stream),
            ("cuMemcpyDtoDAsync_v2" + form, other, one, n, stream),
            ("cuMemcpyPeerAsync" + form, other, context, one, context, n, stream),
            ("cuMemcpy2DAsync_v2" + form, byref(flat), stream),
            ("cuMemcpy3DAsync_v2" + form, byref(box), stream),
            ("cuMemcpy3DPeerAsync" + form, byref(box), stream),
        ]
    wrong = []
    for name, *args in calls:
        clear()
        cuda.cuMemsetD8_v2(one, 7, SIZE(64))
        getattr(cuda, name)(*args)
        if read(other, 9) != [7] * 8 + [0]:
            wrong.append(name)
    for form in ("", "_ptds"):
        clear()
        cuda.cuMemsetD8_v2(one, 9, SIZE(64))
        getattr(cuda, "cuMemcpyDtoA_v2" + form)(arrays[0], SIZE(0), one, n)
        getattr(cuda, "cuMemcpyAtoA_v2" + form)(arrays[1], SIZE(4), arrays[0], SIZE(0), n)
        getattr(cuda, "cuMemcpyAtoD_v2" + form)(other, arrays[1], SIZE(4), n)
        if read(other, 9) != [9] * 8 + [0]:
            wrong.append(form)
    return wrong


def batch() -> object:
    assert ctypes.sizeof(Operation) == 112
    cuda.cuMemsetD8_v2(one, 7, SIZE(64))
    cuda.cuMemsetD8_v2(other, 0, SIZE(64))
    host = (ctypes.c_ubyte * 4)(*b"host")
    targets = (U64 * 3)(other.value, other.value + 8, other.value + 16)
    sources = (U64 * 3)(one.value, one.value, ctypes.addressof(host))
    sizes, attributes, first, failed = (SIZE * 3)(2, 4, 4), Attributes(1), SIZE(0), SIZE()

    def go(stream: c_void_p | None = stream, name: str = "cuMemcpyBatchAsync") -> tuple[str, bool | int]:
        result = cuda.result(
            name,
            targets,
            sources,
            sizes,
            SIZE(3),
            byref(attributes),
            byref(first),
            SIZE(1),
            byref(failed),
            stream,
        )
        return result, failed.value == SIZE(-1).value or failed.value

    seen: list[object] = [go(), read(other, 20), go(None), go(None, "cuMemcpyBatchAsync_ptsz")]
    cuda.cuMemsetD8_v2(other, 0, SIZE(64))
    targets[1] = other.value + 4094
    seen += [go(), read(other, 20)]
    operation = Operation(Operand(1, Place(one.value)), Operand(1, Place(other.value, 8)), 2, 2, 1, 1)

    def boxes() -> str:
        return cuda.result("cuMemcpy3DBatchAsync", SIZE(1), byref(operation), byref(failed), U64(0), stream)

    seen += [boxes(), read(other, 12)]
    operation.order = 0
    seen.append((boxes(), failed.value))
    return seen


def oldest_ways() -> object:
    early = cuda.result("cuLaunch", kernel)
    cuda.cuFuncSetBlockShape(kernel, 32, 1, 1)
    cuda.cuFuncSetSharedSize(kernel, 0)
    cuda.cuParamSetSize(kernel, 8)
    cuda.cuParamSeti(kernel, 0, 20_000_000)
    cuda.cuParamSeti(kernel, 4, 0)
    cuda.cuLaunch(kernel)
    cuda.cuLaunchGrid(kernel, 2, 2)
    cuda.cuLaunchGridAsync(kernel, 1, 1, stream)
    cuda.cuParamSetv(kernel, 0, byref(U64(10_000_000)), 8)
    cuda.cuLaunchGridAsync(kernel, 1, 1, stream)
    cuda.cuCtxSynchronize()
    small = cuda.kernel(b"small")
    cuda.cuFuncSetBlockShape(small, 1, 1, 1)
    cuda.cuParamSetf(small, 0, c_float(1.5))
    cuda.cuLaunch(small)
    cuda.cuCtxSynchronize()
    return [early, cuda.result("cuParamSetSize", kernel, 4097), cuda.result("cuLaunchGrid", kernel, 0, 1)]


def wait_for_later() -> object:
    late = cuda.make("cuStreamCreate", 1)
    cuda.cuMemsetD8_v2(one, 0, SIZE(64))
    order: list[int] = []
    says = [HOST(lambda _, i=i: order.append(i)) for i in range(4)]
    cuda.cuStreamWaitValue32_v2(stream, one, 5, 0)
    cuda.cuLaunchHostFunc(stream, says[0], None)
    cuda.cuStreamWaitValue64_v2(stream, at(one, 8), U64(1 << 40), 1)
    cuda.cuLaunchHostFunc(stream, says[1], None)
    time.sleep(0.02)  # A stream that did not wait would have gone on by now.
    early = list(order), cuda.result("cuStreamQuery", stream)
    cuda.busy(kernel, 20, late)
    cuda.cuLaunchHostFunc(late, says[2], None)
    cuda.cuStreamWriteValue32_v2(late, one, 6, 0)
    cuda.cuStreamSynchronize(late)
    cuda.cuLaunchHostFunc(late, says[3], None)
    cuda.cuStreamSynchronize(late)
    cuda.cuStreamWriteValue64_v2(late, at(one, 8), U64(1 << 40), 0)
    cuda.cuStreamSynchronize(stream)
    graph = PTR()
    cuda.cuStreamBeginCapture_v2(late, 2)
    return [
        early,
        order,
        cuda.result("cuStreamWaitValue32_v2", stream, U64(8), 5, 0),
        cuda.result("cuStreamWriteValue32_v2", late, one, 5, 0),
        cuda.result("cuStreamEndCapture", late, byref(graph)),
    ]


def change_nodes() -> object:
    class Fill(ctypes.Structure):
        _fields_ = [
            ("target", U64),
            ("pitch", SIZE),
            ("value", UINT),
            ("element", UINT),
            ("width", SIZE),
            ("height", SIZE),
        ]

    class Body(ctypes.Union):
        _fields_ = [("kernel", Kernel), ("fill", Fill), ("handle", PTR), ("pad", U64 * 29)]

    class Params(ctypes.Structure):
        _fields_ = [("type", INT), ("reserved", INT * 3), ("body", Body), ("last", U64)]

    def of(kind: int, **body: Any) -> Params:  # noqa: ANN401 - one field of the union
        return Params(kind, (INT * 3)(), Body(**body))

    pointers = [parameters(length) for length in (20_000_000, 5_000_000)]

    def launch(i: int) -> Params:
        return of(0, kernel=Kernel(kernel, SHAPE, 0, ctypes.addressof(pointers[i])))

    def fill(value: int) -> Params:
        return of(2, fill=Fill(one.value, 0, value, 1, 8, 1))

    def add(graph: c_void_p, params: Params) -> c_void_p:
        return cuda.make("cuGraphAddNode", graph, None, SIZE(0), byref(params))

    events = [cuda.make("cuEventCreate", 0) for _ in range(2)]
    children = [cuda.make("cuGraphCreate", 0) for _ in range(2)]
    add(children[0], launch(0))
    add(children[1], launch(1))
    graph = cuda.make("cuGraphCreate", 0)
    nodes = [
        add(graph, params)
        for params in (launch(0), fill(1), of(7, handle=events[0]), of(4, handle=children[0]))
    ]
    executable = cuda.make("cuGraphInstantiateWithFlags", graph, U64(0))

    def run(which: c_void_p) -> None:
        cuda.cuGraphLaunch(which, stream)
        cuda.cuStreamSynchronize(stream)

    run(executable)
    seen: list[object] = [
        read(one, 1),
        cuda.result("cuEventElapsedTime", byref(c_float()), events[0], events[1]),
    ]
    changed = (launch(1), fill(2), of(7, handle=events[1]), of(4, handle=children[1]))
    seen.append(
        [
            cuda.result("cuGraphExecNodeSetParams", executable, node, byref(params))
            for node, params in zip(nodes, changed, strict=True)
        ]
    )
    run(executable)
    seen += [read(one, 1), cuda.result("cuEventElapsedTime", byref(c_float()), events[0], events[1])]
    named = PTR()
    cuda.cuGraphEventRecordNodeGetEvent(nodes[2], byref(named))
    context = cuda.make("cuCtxGetCurrent")
    cuda.cuCtxSetCurrent(None)  # only a kernel needs a context
    cuda.cuGraphNodeSetParams(nodes[1], byref(fill(3)))
    no_context = cuda.result("cuGraphNodeSetParams", nodes[0], byref(launch(1)))
    cuda.cuCtxSetCurrent(context)
    run(cuda.make("cuGraphInstantiateWithFlags", graph, U64(0)))
    wrong = cuda.result("cuGraphExecNodeSetParams", executable, nodes[0], byref(fill(1)))
    seen += [named.value == events[0].value, no_context, read(one, 1), wrong]
    return seen
