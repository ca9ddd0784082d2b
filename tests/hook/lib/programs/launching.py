"""Launches kernels of known length, in threads of their own where a test wants that."""

import random
import threading
import time
from collections.abc import Callable
from ctypes import byref, c_void_p
from typing import Any

from tests.hook.lib.programs.calls import call, make, must
from tests.programs.cuda import U64, cuda, library, parameters

Stream = c_void_p | None

primary = make("cuDevicePrimaryCtxRetain", 0)
kernel = cuda.kernel()
over = threading.Event()
"""Ends whatever launches until then."""
threads: list[threading.Thread] = []
results: dict[int, Any] = {}


def load() -> c_void_p:
    """A kernel of the current context."""
    return cuda.kernel()


def reload() -> None:
    """From now on launches are of a kernel of the current context."""
    global kernel  # noqa: PLW0603 - the kernel of all launches here
    kernel = load()


def launch(ns: int, stream: Stream = None, name: str = "cuLaunchKernel") -> int:
    """Launches a kernel of that length: code."""
    return call(name, kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters(ns), None)


def executable(ns: int) -> c_void_p:
    """A graph of one kernel, ready to be launched."""
    maker = make("cuStreamCreate", 1)
    must("cuStreamBeginCapture_v2", maker, 2)
    assert launch(ns, maker) == 0
    graph = U64()
    must("cuStreamEndCapture", maker, byref(graph))
    return make("cuGraphInstantiateWithFlags", graph, U64(0))


def replaying(ns: int, seconds: float) -> None:
    """Launches one graph of a kernel again and again, for this long or until it is over."""
    graph, end = executable(ns), time.monotonic() + seconds
    while time.monotonic() < end and not over.is_set():
        must("cuGraphLaunch", graph, None)


def greedy(
    ns: int,
    seconds: float,
    synced: bool = False,  # noqa: FBT001, FBT002 - likewise
    duty: float = 1.0,
    every: float = 0.02,
    stream: Stream = None,
) -> int:
    """Launches for this long, or until it is over, in a part of each period if `duty` says so: how often."""
    held, end, count = parameters(ns), time.monotonic() + seconds, 0
    launch_one, wait = library.cuLaunchKernel, library.cuStreamSynchronize
    while (now := time.monotonic()) < end and not over.is_set():
        if duty < 1 and now % every > every * duty:
            wait(stream)
            time.sleep(every - time.monotonic() % every)
        launch_one(kernel, 1, 1, 1, 1, 1, 1, 0, stream, held, None)
        count += 1
        if synced:
            wait(stream)
    wait(stream)
    return count


def fan_out(seed: int, streams: list[c_void_p], lengths: list[int], seconds: float) -> None:
    """Launches kernels of drawn lengths into drawn streams, and waits for all of them now and then."""
    chance, end = random.Random(seed), time.monotonic() + seconds  # noqa: S311 - repeatable
    held = [parameters(ns) for ns in lengths]
    while time.monotonic() < end and not over.is_set():
        for stream in chance.sample(streams, chance.randint(1, len(streams))):
            must("cuLaunchKernel", kernel, 1, 1, 1, 1, 1, 1, 0, stream, chance.choice(held), None)
        if chance.random() < 0.5:
            must("cuCtxSynchronize")


def hold_and_release() -> None:
    """Retains the primary context once more, and releases it, until it is over."""
    while not over.is_set():
        make("cuDevicePrimaryCtxRetain", 0)
        must("cuDevicePrimaryCtxRelease_v2", 0)
        time.sleep(0.001)


def seconds_in_new_context(ns: int, count: int) -> float:
    """The time that this many launches take in a context of their own."""
    own = make("cuCtxCreate_v2", 0, 0)
    one = load()
    begun = time.monotonic()
    for _ in range(count):
        assert call("cuLaunchKernel", one, 1, 1, 1, 1, 1, 1, 0, None, parameters(ns), None) == 0
    took = time.monotonic() - begun
    must("cuCtxDestroy_v2", own)
    must("cuCtxSetCurrent", primary)
    return took


def aside(function: Callable[..., object], *args: object, context: c_void_p | None = None) -> int:
    """Runs a function in a thread of its own; returns the thread's number."""

    def run() -> None:
        must("cuCtxSetCurrent", context or primary)
        results[number] = function(*args)

    number = len(threads)
    threads.append(threading.Thread(target=run))
    threads[-1].start()
    return number


def joined() -> list[Any]:
    """Wait for all threads, and return their functions' results in the order of the threads."""
    for thread in threads:
        thread.join()
    return [results[number] for number in range(len(threads))]
