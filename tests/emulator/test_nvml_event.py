"""An event set delivers each event of a registered GPU once, and sleeps until then."""

import time
from collections.abc import Iterator
from pathlib import Path

import pynvml
import pytest

from tests.emulator.nvml_program import Program, refusal, tool

XID = pynvml.nvmlEventTypeXidCriticalError
FOREVER_MS = 120_000
"""Far above what any event takes: a wait this long that ends early was woken."""


@pytest.fixture
def nvml(node_file: Path) -> Iterator[Program]:
    """A program that registered a set for XIDs of GPU 0 and can wait for `(gpu, type, data)`."""
    with Program(node_file) as program:
        program("n.nvmlInit(); events = n.nvmlEventSetCreate()")
        program(f"n.nvmlDeviceRegisterEvents(gpu(0), {XID}, events)")
        yield program


def until_asleep(pid: int) -> None:
    """Return once the process sleeps on a futex; at once where the kernel does not show it ("0")."""
    while (place := Path(f"/proc/{pid}/wchan").read_text()) != "0" and "futex" not in place:
        time.sleep(0.01)


def test_each_injected_xid_is_delivered_once_and_in_order(nvml: Program, node_file: Path) -> None:
    """Two XIDs of a registered GPU come out in order, and then none is left."""
    tool(node_file, "xid", "0", "13")
    tool(node_file, "xid", "0", "31")
    assert nvml(f"[wait({FOREVER_MS}) for _ in range(2)]") == [[0, XID, 13], [0, XID, 31]]
    assert refusal(nvml, "wait(0)") == pynvml.NVML_ERROR_TIMEOUT


def test_events_of_unregistered_gpus_and_of_the_past_stay_away(nvml: Program, node_file: Path) -> None:
    """An event of another GPU, or from before the registration, is not delivered."""
    tool(node_file, "xid", "1", "13")
    nvml(f"n.nvmlDeviceRegisterEvents(gpu(1), {XID}, events)")
    assert refusal(nvml, "wait(0)") == pynvml.NVML_ERROR_TIMEOUT
    tool(node_file, "xid", "2", "14")
    tool(node_file, "xid", "1", "15")
    assert nvml(f"wait({FOREVER_MS})") == [1, XID, 15]


def test_a_second_registration_keeps_what_the_first_was_owed(nvml: Program, node_file: Path) -> None:
    """A second registration of a GPU keeps its undelivered events."""
    tool(node_file, "xid", "0", "48")
    nvml(f"n.nvmlDeviceRegisterEvents(gpu(0), {XID}, events)")
    assert nvml("wait(0)") == [0, XID, 48]


def test_a_wait_ends_with_the_event_not_with_the_timeout(nvml: Program, node_file: Path) -> None:
    """A program asleep in a wait of minutes gets the event that another process injects meanwhile."""
    nvml.send(f"wait({FOREVER_MS})")
    until_asleep(nvml.pid)
    tool(node_file, "xid", "0", "79")
    assert nvml.receive() == [0, XID, 79]


def test_a_wait_sleeps_until_its_timeout(nvml: Program) -> None:
    """A wait without an event lasts its timeout and costs next to no processor time."""
    nvml("import time; started, used = time.monotonic(), time.process_time()")
    assert refusal(nvml, "wait(400)") == pynvml.NVML_ERROR_TIMEOUT
    assert nvml("time.monotonic() - started") >= 0.4
    assert nvml("time.process_time() - used") < 0.2


def test_sets_are_independent(nvml: Program, node_file: Path) -> None:
    """Two programs that registered the same GPU both get the event."""
    with Program(node_file) as other:
        other("n.nvmlInit(); events = n.nvmlEventSetCreate()")
        other(f"n.nvmlDeviceRegisterEvents(gpu(0), {XID}, events)")
        tool(node_file, "xid", "0", "62")
        assert other(f"n.nvmlEventSetWait(events, {FOREVER_MS}).eventData") == 62
    assert nvml(f"wait({FOREVER_MS})") == [0, XID, 62]


def test_kinds_that_the_card_has_not_are_refused(nvml: Program) -> None:
    """Clock events are NOT_SUPPORTED, unknown bits INVALID_ARGUMENT; the set goes on working."""
    register = "n.nvmlDeviceRegisterEvents(gpu(0), {}, events)"
    supported = nvml("n.nvmlDeviceGetSupportedEventTypes(gpu(0))")
    assert supported & XID
    assert not supported & pynvml.nvmlEventTypeClock
    assert refusal(nvml, register.format(pynvml.nvmlEventTypeClock)) == pynvml.NVML_ERROR_NOT_SUPPORTED
    assert refusal(nvml, register.format(1 << 60)) == pynvml.NVML_ERROR_INVALID_ARGUMENT
    assert refusal(nvml, "wait(0)") == pynvml.NVML_ERROR_TIMEOUT


def test_a_gpu_off_the_bus_is_lost_until_it_is_back(nvml: Program, node_file: Path) -> None:
    """Measurements return GPU_IS_LOST, a pending XID still comes out, and the name stays known."""
    tool(node_file, "xid", "0", "79")
    tool(node_file, "lose", "0")
    assert refusal(nvml, "n.nvmlDeviceGetMemoryInfo(gpu(0))") == pynvml.NVML_ERROR_GPU_IS_LOST
    assert refusal(nvml, "n.nvmlDeviceGetComputeRunningProcesses(gpu(0))") == pynvml.NVML_ERROR_GPU_IS_LOST
    assert nvml(f"wait({FOREVER_MS})") == [0, XID, 79]
    assert refusal(nvml, f"wait({FOREVER_MS})") == pynvml.NVML_ERROR_GPU_IS_LOST
    assert nvml("n.nvmlDeviceGetName(gpu(0))") == "NVIDIA L4"
    assert nvml("n.nvmlDeviceGetMemoryInfo(gpu(1)).used") == 1 << 30
    tool(node_file, "find", "0")
    assert nvml("n.nvmlDeviceGetMemoryInfo(gpu(0)).used") == 512 << 20


def test_an_event_goes_to_one_of_the_threads_that_wait_on_a_set(nvml: Program, node_file: Path) -> None:
    """Two threads on one set share its events: each event comes out once, none is lost."""
    nvml(
        f"threads = [threading.Thread(target=listen, args=(2, {FOREVER_MS})) for _ in range(2)]\n"
        "for thread in threads: thread.start()"
    )
    for xid in ("1", "2", "3", "4"):
        tool(node_file, "xid", "0", xid)
    nvml("for thread in threads: thread.join()")
    assert nvml("sorted(got)") == [1, 2, 3, 4]
