"""Events of whole contexts, the moments at which events are reached, and the effect of queries on captures."""

from tests.emulator.cuda_program import Node, wait_for

HOSTS = """
context = cuda.context(); kernel = cuda.kernel()
one, other = cuda.make("cuStreamCreate", 1), cuda.make("cuStreamCreate", 1)
event, mark = cuda.make("cuEventCreate", 0), cuda.make("cuEventCreate", 0)
HOST, gate, order = ctypes.CFUNCTYPE(None, PTR), threading.Event(), []
hold = HOST(lambda _: gate.wait())
says = [HOST(lambda _, i=i: order.append(i)) for i in range(4)]
def elapsed(start, end):
    ms = c_float()
    cuda.cuEventElapsedTime(byref(ms), start, end)
    return ms.value
"""


def test_a_contexts_event_stands_for_the_work_of_all_its_streams(node: Node) -> None:
    """A context's event is reached after all earlier work of all streams and threads, and not after later work."""
    seen = node.python(
        HOSTS
        + """
cuda.cuLaunchHostFunc(one, hold, None); cuda.busy(kernel, 30, one); cuda.busy(kernel, 20, other)
def record(): seen.append(cuda.result("cuCtxRecordEvent", context, event))
seen = []
helper = threading.Thread(target=record); helper.start(); helper.join()
cuda.busy(kernel, 1, other)
cuda.cuStreamSynchronize(other)
later = threading.Event(); wait = HOST(lambda _: later.wait()); cuda.cuLaunchHostFunc(one, wait, None)
seen.append(cuda.result("cuEventQuery", event)); gate.set()
cuda.cuEventSynchronize(event)
seen += [cuda.result("cuStreamQuery", other), cuda.result("cuStreamQuery", one)]; later.set()
cuda.cuStreamSynchronize(one); show(seen)
"""
    )
    assert seen == ["CUDA_SUCCESS", "CUDA_ERROR_NOT_READY", "CUDA_SUCCESS", "CUDA_ERROR_NOT_READY"]


def test_a_context_that_waits_for_an_event_holds_all_later_work(node: Node) -> None:
    """Old streams and streams made afterwards do nothing until the event is reached; no thread blocks."""
    seen = node.python(
        HOSTS
        + """
cuda.cuLaunchHostFunc(one, hold, None); cuda.cuEventRecord(event, one)
waits = cuda.result("cuCtxWaitEvent", context, event)
third = cuda.make("cuStreamCreate", 1)
for stream, say in zip((None, other, third), says): cuda.cuLaunchHostFunc(stream, say, None)
time.sleep(0.05); before = list(order); gate.set()
cuda.cuCtxSynchronize()
show([waits, before, sorted(order)])
"""
    )
    assert seen == ["CUDA_SUCCESS", [], [0, 1, 2]]


def test_a_green_contexts_event_stands_for_its_own_work_only(node: Node) -> None:
    """The primary context's event waits for its green contexts' work too. Theirs do not wait for its work."""
    seen = node.python(
        HOSTS
        + """
class Resource(ctypes.Structure):
    _fields_ = [("type", INT), ("device", INT), ("rest", ctypes.c_ubyte * 136)]
whole = Resource(); cuda.cuDeviceGetDevResource(0, byref(whole), 1)
green = cuda.make("cuGreenCtxCreate", cuda.make("cuDevResourceGenerateDesc", byref(whole), 1), 0, 1)
inner = cuda.make("cuGreenCtxStreamCreate", green, 1, 0)
def of(stream):
    handle = PTR(); cuda.cuStreamGetGreenCtx(stream, byref(handle)); return handle.value
cuda.cuLaunchHostFunc(one, hold, None)
first = cuda.result("cuGreenCtxRecordEvent", green, event), cuda.result("cuEventQuery", event)
second = threading.Event(); wait = HOST(lambda _: second.wait())
gate.set(); cuda.cuStreamSynchronize(one)
cuda.cuLaunchHostFunc(inner, wait, None)
cuda.cuCtxRecordEvent(context, mark); after = cuda.result("cuEventQuery", mark)
alien = cuda.make("cuCtxCreate_v2", 0, 0); foreign = cuda.make("cuEventCreate", 0)
refused = cuda.result("cuGreenCtxRecordEvent", green, foreign), cuda.result("cuCtxRecordEvent", None, event)
cuda.cuGreenCtxWaitEvent(green, event); second.set(); cuda.cuEventSynchronize(mark)
show([first, after, refused, of(one), of(inner) == green.value])
"""
    )
    assert seen == [
        ["CUDA_SUCCESS", "CUDA_SUCCESS"],
        "CUDA_ERROR_NOT_READY",
        ["CUDA_ERROR_INVALID_HANDLE", "CUDA_ERROR_INVALID_CONTEXT"],
        None,
        True,
    ]


def test_a_contexts_event_and_a_capture_exclude_each_other(node: Node) -> None:
    """Recording or awaiting an event of a context in which a stream captures fails, and spoils the capture."""
    seen = node.python(
        HOSTS
        + """
def attempt(name, event):
    graph = PTR(); cuda.cuStreamBeginCapture_v2(one, 2)
    return cuda.result(name, context, event), cuda.result("cuStreamEndCapture", one, byref(graph))
seen = [attempt("cuCtxRecordEvent", event), attempt("cuCtxWaitEvent", mark)]
spared = cuda.make("cuCtxCreate_v2", 0, 0); graph = PTR()
cuda.cuStreamBeginCapture_v2(one, 0); own = cuda.make("cuEventCreate", 0)
seen.append((cuda.result("cuCtxRecordEvent", spared, own), cuda.result("cuStreamEndCapture", one, byref(graph))))
show(seen)
"""
    )
    spoiled = ["CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"]
    assert seen == [spoiled, spoiled, ["CUDA_SUCCESS", "CUDA_SUCCESS"]]


def test_asking_for_an_event_harms_another_threads_global_capture_unless_relaxed(node: Node) -> None:
    """A query of an event acts by its thread's mode: global fails and spoils the capture, the other modes pass."""
    seen = node.python(
        HOSTS
        + """
cuda.cuEventRecord(event, other)
def ask(name, mode, capture_mode, seen):
    wish = INT(mode); cuda.cuCtxSetCurrent(context); cuda.cuThreadExchangeStreamCaptureMode(byref(wish))
    seen.append(cuda.result(name, event))
def attempt(name, mode, capture_mode):
    graph, seen = PTR(), []
    cuda.cuStreamBeginCapture_v2(one, capture_mode)
    thread = threading.Thread(target=ask, args=(name, mode, capture_mode, seen)); thread.start(); thread.join()
    return seen + [cuda.result("cuStreamEndCapture", one, byref(graph))]
show([[attempt(name, mode, capture) for mode in range(3) for capture in range(3)]
      for name in ("cuEventQuery", "cuEventSynchronize")])
"""
    )
    spoiled = ["CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"]
    fine = ["CUDA_SUCCESS", "CUDA_SUCCESS"]
    assert seen == [[spoiled] + [fine] * 8] * 2


def test_a_kernel_on_an_idle_stream_is_timed_by_the_device(node: Node) -> None:
    """Events around one 20 µs kernel are 20 µs apart, plus what the program takes between the calls."""
    timed = node.python(
        HOSTS
        + """
length = U64(20000); parameters = (PTR * 1)(ctypes.addressof(length))
def attempt():
    cuda.raw("cuEventRecord", event, one)
    cuda.raw("cuLaunchKernel", kernel, 1, 1, 1, 1, 1, 1, 0, one, parameters, None)
    cuda.raw("cuEventRecord", mark, one)
    time.sleep(0.001)
    return elapsed(event, mark) * 1e3
show([attempt() for _ in range(200)])
"""
    )
    assert all(us >= 19.9 for us in timed)
    assert min(timed) < 25  # one attempt in two hundred was not interrupted


def test_an_event_keeps_its_date_whatever_comes_after(node: Node) -> None:
    """Thousands of later kernels with pauses between them do not move the date of an event that is queried late."""
    early, late, whole = node.python(
        HOSTS
        + """
last = cuda.make("cuEventCreate", 0)
cuda.cuEventRecord(event, one); cuda.busy(kernel, 20, one); cuda.cuEventRecord(mark, one)
for _ in range(3000): cuda.busy(kernel, 0.02, one); cuda.cuStreamSynchronize(one)
cuda.cuEventRecord(last, one)
show([elapsed(event, mark), elapsed(event, last) - elapsed(mark, last), elapsed(event, last)])
"""
    )
    assert 20 <= early < whole - 60
    assert abs(early - late) < 0.01


def test_dates_hold_while_processes_take_turns(node: Node) -> None:
    """Beside a greedy neighbour each piece of work ends when the device has done it, after the neighbour's turns."""
    neighbour = node.start("--kernel-ms", "3", "--seconds", "600")
    try:
        wait_for(lambda: any(process["busy_ns"] for process in node.book()[0]["processes"]))
        steps = node.python(
            HOSTS
            + """
marks = [cuda.make("cuEventCreate", 0) for _ in range(101)]
cuda.busy(kernel, 1, one); cuda.cuEventRecord(marks[0], one)
for mark in marks[1:]: cuda.busy(kernel, 1, one); cuda.cuEventRecord(mark, one)
cuda.cuStreamSynchronize(one)
show([elapsed(marks[i], marks[i + 1]) for i in range(100)])
"""
        )
    finally:
        neighbour.kill()
        neighbour.communicate()
    assert all(ms > 0.999 for ms in steps)
    assert any(ms > 2.9 for ms in steps)  # a turn of the neighbour's lay between
    assert 150 < sum(steps) < 260
