"""Events of whole contexts, the moments at which events are reached, and the effect of queries on captures."""

from tests.emulator.cuda_program import Node, wait_for


def test_a_contexts_event_stands_for_the_work_of_all_its_streams(node: Node) -> None:
    """A context's event is reached after all earlier work of all streams and threads, and not after later work."""
    seen = node.python("context_events.all_streams")
    assert seen == ["CUDA_SUCCESS", "CUDA_ERROR_NOT_READY", "CUDA_SUCCESS", "CUDA_ERROR_NOT_READY"]


def test_a_context_that_waits_for_an_event_holds_all_later_work(node: Node) -> None:
    """Old streams and streams made afterwards do nothing until the event is reached; no thread blocks."""
    seen = node.python("context_events.waiting_context")
    assert seen == ["CUDA_SUCCESS", [], [0, 1, 2]]


def test_a_green_contexts_event_stands_for_its_own_work_only(node: Node) -> None:
    """The primary context's event waits for its green contexts' work too. Theirs do not wait for its work."""
    seen = node.python("context_events.green_context")
    assert seen == [
        ["CUDA_SUCCESS", "CUDA_SUCCESS"],
        "CUDA_ERROR_NOT_READY",
        ["CUDA_ERROR_INVALID_HANDLE", "CUDA_ERROR_INVALID_CONTEXT"],
        None,
        True,
    ]


def test_a_contexts_event_and_a_capture_exclude_each_other(node: Node) -> None:
    """Recording or awaiting an event of a context in which a stream captures fails, and spoils the capture."""
    seen = node.python("context_events.during_a_capture")
    spoiled = ["CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"]
    assert seen == [spoiled, spoiled, ["CUDA_SUCCESS", "CUDA_SUCCESS"]]


def test_asking_for_an_event_harms_another_threads_global_capture_unless_relaxed(node: Node) -> None:
    """A query of an event acts by its thread's mode: global fails and spoils the capture, the other modes pass."""
    seen = node.python("context_events.asking_during_a_capture")
    spoiled = ["CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"]
    fine = ["CUDA_SUCCESS", "CUDA_SUCCESS"]
    assert seen == [[spoiled] + [fine] * 8] * 2


def test_a_kernel_on_an_idle_stream_is_timed_by_the_device(node: Node) -> None:
    """Events around one 20 µs kernel are 20 µs apart, plus what the program takes between the calls."""
    timed = node.python("context_events.time_short_kernels")
    assert 19.9 <= min(timed) < 25  # one attempt in two hundred was not interrupted


def test_an_event_keeps_its_date_whatever_comes_after(node: Node) -> None:
    """Thousands of later kernels with pauses between them do not move the date of an event that is queried late."""
    early, late, whole = node.python("context_events.late_dates")
    assert 20 <= early < whole - 60
    assert abs(early - late) < 0.01


def test_dates_hold_while_processes_take_turns(node: Node) -> None:
    """Beside a greedy neighbour each piece of work ends when the device has done it, after the neighbour's turns."""
    neighbour = node.start("--kernel-ms", "3", "--seconds", "600")
    try:
        wait_for(lambda: any(process["busy_ns"] for process in node.book()[0]["processes"]))
        steps = node.python("context_events.hundred_dates")
    finally:
        neighbour.kill()
        neighbour.communicate()
    assert all(ms > 0.999 for ms in steps)
    assert any(ms > 2.9 for ms in steps)  # a turn of the neighbour's lay between
    assert (
        sum(steps) < 260
    )  # the neighbour gets no more than its turns; while its host stands still, it gets fewer
