"""All ways to give the device work run, take device time, and move their data."""

from tests.emulator.cuda_program import Node

PROGRAM = """
context = cuda.context(); kernel = cuda.kernel()
stream = cuda.make("cuStreamCreate", 1)
one, other = cuda.alloc(4096), cuda.alloc(4096)
def at(address, offset=0): return U64(address.value + offset)
def read(address, count=8):
    cuda.cuCtxSynchronize()
    data = (ctypes.c_ubyte * count)()
    cuda.cuMemcpyDtoH_v2(data, address, SIZE(count))
    return list(data)
def clear(): cuda.cuMemsetD8_v2(one, 0, SIZE(4096)); cuda.cuMemsetD8_v2(other, 0, SIZE(4096))
"""


def test_every_fill_fills(node: Node) -> None:
    """Rows and boxes are filled with bytes, words and double words, at once and in a stream of either default."""
    seen = node.python(
        PROGRAM
        + """
values = {8: ctypes.c_ubyte(1), 16: ctypes.c_ushort(0x0201), 32: UINT(0x04030201)}
def fills(bits):
    n, v, pitch = SIZE(8 * 8 // bits), values[bits], SIZE(16)
    name = f"cuMemsetD{bits}"; flat = f"cuMemsetD2D{bits}"
    yield from ((name + form, (one, v, n)) for form in ("_v2", "_v2_ptds"))
    yield from ((name + form, (one, v, n, stream)) for form in ("Async", "Async_ptsz"))
    yield from ((flat + form, (one, pitch, v, n, SIZE(2))) for form in ("_v2", "_v2_ptds"))
    yield from ((flat + form, (one, pitch, v, n, SIZE(2), stream)) for form in ("Async", "Async_ptsz"))
wrong = []
for bits in values:
    step = [1, 2, 3, 4][:bits // 8]
    for name, args in fills(bits):
        clear(); getattr(cuda, name)(*args)
        rows = 2 if "2D" in name else 1
        if read(one, 32) != ((step * 8)[:8] + [0] * 8) * rows + [0] * 16 * (2 - rows): wrong.append(name)
show(wrong)
"""
    )
    assert seen == []


def test_every_copy_on_the_device_copies(node: Node) -> None:
    """Lines, boxes, arrays, peers and batches, at once and in a stream, under either default stream."""
    seen = node.python(
        PROGRAM
        + """
class Array(ctypes.Structure):
    _fields_ = [("width", SIZE), ("height", SIZE), ("format", INT), ("channels", UINT)]
class Side(ctypes.Structure):
    _fields_ = [("x", SIZE), ("y", SIZE), ("type", INT), ("host", PTR), ("device", U64), ("array", PTR),
                ("pitch", SIZE)]
class Flat(ctypes.Structure):
    _fields_ = [("source", Side), ("target", Side), ("width", SIZE), ("height", SIZE)]
class Side3(ctypes.Structure):
    _fields_ = [("x", SIZE), ("y", SIZE), ("z", SIZE), ("level", SIZE), ("type", INT), ("host", PTR), ("device", U64),
                ("array", PTR), ("context", PTR), ("pitch", SIZE), ("height", SIZE)]
class Box(ctypes.Structure):
    _fields_ = [("source", Side3), ("target", Side3), ("width", SIZE), ("height", SIZE), ("depth", SIZE)]
arrays = [cuda.make("cuArrayCreate_v2", byref(Array(64, 1, 1, 1))) for _ in range(2)]
n = SIZE(8)
flat = Flat(Side(type=2, device=one.value), Side(type=2, device=other.value), 8, 1)
box = Box(Side3(type=2, device=one.value, context=context.value),
          Side3(type=2, device=other.value, context=context.value), 8, 1, 1)
copies = []
for form in ("", "_ptds"):
    copies += [("cuMemcpy" + form, other, one, n), ("cuMemcpyDtoD_v2" + form, other, one, n),
               ("cuMemcpyPeer" + form, other, context, one, context, n), ("cuMemcpy2D_v2" + form, byref(flat)),
               ("cuMemcpy2DUnaligned_v2" + form, byref(flat)), ("cuMemcpy3D_v2" + form, byref(box)),
               ("cuMemcpy3DPeer" + form, byref(box))]
for form in ("", "_ptsz"):
    copies += [("cuMemcpyAsync" + form, other, one, n, stream),
               ("cuMemcpyDtoDAsync_v2" + form, other, one, n, stream),
               ("cuMemcpyPeerAsync" + form, other, context, one, context, n, stream),
               ("cuMemcpy2DAsync_v2" + form, byref(flat), stream), ("cuMemcpy3DAsync_v2" + form, byref(box), stream),
               ("cuMemcpy3DPeerAsync" + form, byref(box), stream)]
wrong = []
for name, *args in copies:
    clear(); cuda.cuMemsetD8_v2(one, 7, SIZE(64)); getattr(cuda, name)(*args)
    if read(other, 9) != [7] * 8 + [0]: wrong.append(name)
for form in ("", "_ptds"):
    clear(); cuda.cuMemsetD8_v2(one, 9, SIZE(64))
    getattr(cuda, "cuMemcpyDtoA_v2" + form)(arrays[0], SIZE(0), one, n)
    getattr(cuda, "cuMemcpyAtoA_v2" + form)(arrays[1], SIZE(4), arrays[0], SIZE(0), n)
    getattr(cuda, "cuMemcpyAtoD_v2" + form)(other, arrays[1], SIZE(4), n)
    if read(other, 9) != [9] * 8 + [0]: wrong.append(form)
show(wrong)
"""
    )
    assert seen == []


def test_a_batch_of_copies_runs_whole_or_not_at_all(node: Node) -> None:
    """All copies of a batch run in their stream. If one is malformed it is named, and none runs."""
    seen = node.python(
        PROGRAM
        + """
class Attributes(ctypes.Structure):
    _fields_ = [("order", INT), ("source", INT * 2), ("target", INT * 2), ("flags", UINT)]
class Operand(ctypes.Structure):
    _fields_ = [("type", INT), ("pointer", U64), ("row", SIZE), ("layer", SIZE), ("hint", INT * 2)]
class Operation(ctypes.Structure):
    _fields_ = [("source", Operand), ("target", Operand), ("width", SIZE), ("height", SIZE), ("depth", SIZE),
                ("order", INT), ("flags", UINT)]
assert ctypes.sizeof(Operation) == 112
cuda.cuMemsetD8_v2(one, 7, SIZE(64)); cuda.cuMemsetD8_v2(other, 0, SIZE(64)); host = (ctypes.c_ubyte * 4)(*b"host")
targets = (U64 * 3)(other.value, other.value + 8, other.value + 16)
sources = (U64 * 3)(one.value, one.value, ctypes.addressof(host))
sizes, attributes, first, failed = (SIZE * 3)(2, 4, 4), Attributes(1), SIZE(0), SIZE()
def batch(stream=stream, name="cuMemcpyBatchAsync"):
    result = cuda.result(name, targets, sources, sizes, SIZE(3), byref(attributes), byref(first), SIZE(1),
                         byref(failed), stream)
    return result, failed.value == SIZE(-1).value or failed.value
seen = [batch(), read(other, 20), batch(None), batch(None, "cuMemcpyBatchAsync_ptsz")]
cuda.cuMemsetD8_v2(other, 0, SIZE(64)); targets[1] = other.value + 4094
seen += [batch(), read(other, 20)]
operation = Operation(Operand(1, one.value), Operand(1, other.value, 8), 2, 2, 1, 1)
def boxes():
    return cuda.result("cuMemcpy3DBatchAsync", SIZE(1), byref(operation), byref(failed), U64(0), stream)
seen += [boxes(), read(other, 12)]
operation.order = 0; seen.append((boxes(), failed.value))
show(seen)
"""
    )
    invalid, nothing = "CUDA_ERROR_INVALID_VALUE", [0] * 20
    assert seen[:2] == [["CUDA_SUCCESS", True], [7, 7] + [0] * 6 + [7] * 4 + [0] * 4 + list(b"host")]
    assert seen[2:6] == [[invalid, True], ["CUDA_SUCCESS", True], [invalid, 1], nothing]
    assert seen[6:] == ["CUDA_SUCCESS", [7, 7, 0, 0, 0, 0, 0, 0, 7, 7, 0, 0], [invalid, 0]]


def test_kernels_launch_in_the_oldest_ways(node: Node) -> None:
    """A function keeps its blocks' shape and its parameters, and cannot launch without a shape."""
    seen = node.python(
        PROGRAM
        + """
early = cuda.result("cuLaunch", kernel)
cuda.cuFuncSetBlockShape(kernel, 32, 1, 1); cuda.cuFuncSetSharedSize(kernel, 0)
cuda.cuParamSetSize(kernel, 8); cuda.cuParamSeti(kernel, 0, 20_000_000); cuda.cuParamSeti(kernel, 4, 0)
cuda.cuLaunch(kernel); cuda.cuLaunchGrid(kernel, 2, 2); cuda.cuLaunchGridAsync(kernel, 1, 1, stream)
cuda.cuParamSetv(kernel, 0, byref(U64(10_000_000)), 8)
cuda.cuLaunchGridAsync(kernel, 1, 1, stream); cuda.cuCtxSynchronize()
other = cuda.kernel(b"small")
cuda.cuFuncSetBlockShape(other, 1, 1, 1); cuda.cuParamSetf(other, 0, c_float(1.5)); cuda.cuLaunch(other)
cuda.cuCtxSynchronize()
show([early, cuda.result("cuParamSetSize", kernel, 4097), cuda.result("cuLaunchGrid", kernel, 0, 1)])
"""
    )
    assert seen == ["CUDA_ERROR_INVALID_VALUE"] * 3
    assert node.book()[0]["busy_ns"] == 70_010_000


def test_a_cooperative_launch_runs_on_each_device(node: Node) -> None:
    """One launch over two devices takes its time on both."""
    node.python("""
        class Launch(ctypes.Structure):
            _fields_ = [("function", PTR), ("shape", UINT * 6), ("shared", UINT), ("stream", PTR), ("params", PTR)]
        length = U64(20_000_000); parameters = (PTR * 1)(ctypes.addressof(length)); launches = []
        for device in range(2):
            cuda.context(device); kernel = cuda.kernel(); stream = cuda.make("cuStreamCreate", 1)
            launches.append(Launch(kernel, (UINT * 6)(1, 1, 1, 1, 1, 1), 0, stream, ctypes.addressof(parameters)))
        cuda.cuLaunchCooperativeKernelMultiDevice((Launch * 2)(*launches), 2, 0)
        for launch in launches: cuda.cuStreamSynchronize(PTR(launch.stream))
        show(1)
    """)
    assert [gpu["busy_ns"] for gpu in node.book()] == [20_000_000, 20_000_000]


def test_a_stream_waits_on_the_device_for_what_is_launched_later(node: Node) -> None:
    """A stream's work behind a wait for a word runs once another stream has written it, after earlier work there."""
    seen = node.python(
        PROGRAM
        + """
late = cuda.make("cuStreamCreate", 1); cuda.cuMemsetD8_v2(one, 0, SIZE(64))
HOST, order = ctypes.CFUNCTYPE(None, PTR), []
says = [HOST(lambda _, i=i: order.append(i)) for i in range(4)]
cuda.cuStreamWaitValue32_v2(stream, one, 5, 0); cuda.cuLaunchHostFunc(stream, says[0], None)
cuda.cuStreamWaitValue64_v2(stream, at(one, 8), U64(1 << 40), 1); cuda.cuLaunchHostFunc(stream, says[1], None)
time.sleep(0.02); early = list(order), cuda.result("cuStreamQuery", stream)
cuda.busy(kernel, 20, late); cuda.cuLaunchHostFunc(late, says[2], None); cuda.cuStreamWriteValue32_v2(late, one, 6, 0)
cuda.cuStreamSynchronize(late); cuda.cuLaunchHostFunc(late, says[3], None); cuda.cuStreamSynchronize(late)
cuda.cuStreamWriteValue64_v2(late, at(one, 8), U64(1 << 40), 0); cuda.cuStreamSynchronize(stream)
graph = PTR()
cuda.cuStreamBeginCapture_v2(late, 2)
show([early, order, cuda.result("cuStreamWaitValue32_v2", stream, U64(8), 5, 0),
      cuda.result("cuStreamWriteValue32_v2", late, one, 5, 0), cuda.result("cuStreamEndCapture", late, byref(graph))])
"""
    )
    assert seen[0] == [[], "CUDA_ERROR_NOT_READY"]
    assert seen[1] in ([2, 0, 3, 1], [2, 3, 0, 1])
    assert seen[2:] == [
        "CUDA_ERROR_INVALID_VALUE",
        "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
        "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
    ]


def test_an_executable_graphs_nodes_change_between_its_launches(node: Node) -> None:
    """Kernel, fill, event and child graph take new parameters, in the executable graph only."""
    seen = node.python(
        PROGRAM
        + """
class Kernel(ctypes.Structure):
    _fields_ = [("func", PTR), ("shape", UINT * 6), ("shared", UINT), ("params", PTR), ("extra", PTR), ("kern", PTR),
                ("ctx", PTR)]
class Fill(ctypes.Structure):
    _fields_ = [("target", U64), ("pitch", SIZE), ("value", UINT), ("element", UINT), ("width", SIZE),
                ("height", SIZE)]
class Body(ctypes.Union):
    _fields_ = [("kernel", Kernel), ("fill", Fill), ("handle", PTR), ("pad", U64 * 29)]
class Params(ctypes.Structure):
    _fields_ = [("type", INT), ("reserved", INT * 3), ("body", Body), ("last", U64)]
def of(kind, **body): return Params(kind, (INT * 3)(), Body(**body))
lengths = [U64(20_000_000), U64(5_000_000)]; pointers = [(PTR * 1)(ctypes.addressof(length)) for length in lengths]
def launch(i): return of(0, kernel=Kernel(kernel, (UINT * 6)(1, 1, 1, 1, 1, 1), 0, ctypes.addressof(pointers[i])))
def fill(value): return of(2, fill=Fill(one.value, 0, value, 1, 8, 1))
def add(graph, params): return cuda.make("cuGraphAddNode", graph, None, SIZE(0), byref(params))
events = [cuda.make("cuEventCreate", 0) for _ in range(2)]
children = [cuda.make("cuGraphCreate", 0) for _ in range(2)]
add(children[0], launch(0)); add(children[1], launch(1))
graph = cuda.make("cuGraphCreate", 0)
nodes = [add(graph, params) for params in (launch(0), fill(1), of(7, handle=events[0]), of(4, handle=children[0]))]
executable = cuda.make("cuGraphInstantiateWithFlags", graph, U64(0))
def run(): cuda.cuGraphLaunch(executable, stream); cuda.cuStreamSynchronize(stream)
run(); seen = [read(one, 1), cuda.result("cuEventElapsedTime", byref(c_float()), events[0], events[1])]
changed = (launch(1), fill(2), of(7, handle=events[1]), of(4, handle=children[1]))
seen.append([cuda.result("cuGraphExecNodeSetParams", executable, node, byref(params))
             for node, params in zip(nodes, changed)])
run(); seen += [read(one, 1), cuda.result("cuEventElapsedTime", byref(c_float()), events[0], events[1])]
named = PTR(); cuda.cuGraphEventRecordNodeGetEvent(nodes[2], byref(named))
cuda.cuGraphNodeSetParams(nodes[1], byref(fill(3)))
wrong = cuda.result("cuGraphExecNodeSetParams", executable, nodes[0], byref(fill(1)))
seen += [named.value == events[0].value, wrong]
show(seen)
"""
    )
    good, never = "CUDA_SUCCESS", "CUDA_ERROR_INVALID_HANDLE"
    assert seen == [[1], never, [good] * 4, [2], good, True, "CUDA_ERROR_INVALID_VALUE"]
    assert 50_000_000 <= node.book()[0]["busy_ns"] < 50_100_000
