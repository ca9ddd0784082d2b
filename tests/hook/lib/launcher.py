"""A program that launches kernels of known length, along every path, under a gate that the test writes."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from plimsoll.broker.pages import Work
from tests.hook.lib.container import Container
from tests.hook.lib.program import ANSWER_S, Node
from tests.hook.lib.script import Script

HELPERS: Final = """
import time


class Config(ctypes.Structure):
    _fields_ = [("grid", UINT * 3), ("block", UINT * 3), ("shared", UINT), ("stream", PTR), ("attributes", PTR),
                ("count", UINT)]


class One(ctypes.Structure):
    _fields_ = [("function", PTR), ("grid", UINT * 3), ("block", UINT * 3), ("shared", UINT), ("stream", PTR),
                ("params", PTR)]


ONES = UINT * 3


def load():
    return make("cuModuleGetFunction", make("cuModuleLoadData", b"any image"), b"busy")


def parameters(ns):
    length = U64(ns)
    pointers = (PTR * 1)(ctypes.addressof(length))
    pointers.kept = length
    return pointers


def by_kernel(name, ns, stream):
    return call(name, kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters(ns), None)


def by_config(name, ns, stream):
    config = Config(ONES(1, 1, 1), ONES(1, 1, 1), 0, stream)
    return call(name, byref(config), kernel, parameters(ns), None)


def cooperative(name, ns, stream):
    return call(name, kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters(ns))


def on_all(name, ns, stream):
    held = parameters(ns)
    one = One(kernel.value, ONES(1, 1, 1), ONES(1, 1, 1), 0, stream, ctypes.addressof(held))
    return call(name, byref(one), 1, 0)


def oldest(name, ns, stream):
    must("cuFuncSetBlockShape", kernel, 1, 1, 1)
    must("cuParamSetSize", kernel, 8)
    must("cuParamSetv", kernel, 0, byref(U64(ns)), 8)
    return call(name, kernel, *{"cuLaunch": (), "cuLaunchGrid": (1, 1)}.get(name, (1, 1, stream)))


def by_graph(name, ns, stream):
    maker = make("cuStreamCreate", 1)
    must("cuStreamBeginCapture_v2", maker, 2)
    assert by_kernel("cuLaunchKernel", ns, maker) == 0
    graph = U64()
    must("cuStreamEndCapture", maker, byref(graph))
    return call(name, make("cuGraphInstantiateWithFlags", graph, U64(0)), stream)


PATHS = {
    "cuLaunchKernel": by_kernel, "cuLaunchKernel_ptsz": by_kernel,
    "cuLaunchKernelEx": by_config, "cuLaunchKernelEx_ptsz": by_config,
    "cuLaunchCooperativeKernel": cooperative, "cuLaunchCooperativeKernel_ptsz": cooperative,
    "cuLaunchCooperativeKernelMultiDevice": on_all,
    "cuLaunch": oldest, "cuLaunchGrid": oldest, "cuLaunchGridAsync": oldest,
    "cuGraphLaunch": by_graph, "cuGraphLaunch_ptsz": by_graph,
}


def launch(ns, stream=None, name="cuLaunchKernel"):
    return PATHS[name](name, ns, stream)


is_over = False  # ends whoever is greedy


def greedy(ns, seconds, synced=False, duty=1.0, every=0.02, stream=None):
    held, end, count = parameters(ns), time.monotonic() + seconds, 0
    launch_one, wait = library.cuLaunchKernel, library.cuStreamSynchronize
    while (now := time.monotonic()) < end and not is_over:
        if duty < 1 and now % every > every * duty:
            wait(stream)
            time.sleep(every - time.monotonic() % every)
        launch_one(kernel, 1, 1, 1, 1, 1, 1, 0, stream, held, None)
        count += 1
        if synced:
            wait(stream)
    wait(stream)
    return count


threads, results = [], {}


def aside(function, *args, context=None):
    def run():
        must("cuCtxSetCurrent", context or primary)
        results[number] = function(*args)

    number = len(threads)
    threads.append(threading.Thread(target=run))
    threads[-1].start()
    return number


def joined():
    for thread in threads:
        thread.join()
    return [results[number] for number in range(len(threads))]


primary = make("cuDevicePrimaryCtxRetain", 0)
kernel = load()
"""


class Launcher(Script):
    """Such a program."""

    def __init__(self, node: Node, container: Container, root: Path) -> None:
        super().__init__(node, container.environment, root)
        self._node, self._container = node, container
        self.do(HELPERS)

    def _booked(self, gpu: int) -> dict[str, Any]:
        processes = self._node.book()["gpus"][gpu]["processes"]
        return next(process for process in processes if process["pid"] == self.pid)

    def ended(self) -> int:
        """Let it come to its end; returns its exit code."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self._process.wait(ANSWER_S)

    def launches(self, gpu: int = 0) -> int:
        """Kernels that the driver was given, by its own book."""
        return int(self._booked(gpu)["launches"])

    def executed_ns(self, gpu: int = 0) -> int:
        """For how long the GPU executed its work, by the driver's own book."""
        return int(self._booked(gpu)["busy_ns"])

    def work(self, gpu: int = 0) -> Work:
        """The words in which the library tells of its work there."""
        work: Work = self._container.counts().works[self._container.slot_of(self.pid)].gpus[gpu]
        return work

    def stands_idle(self, threads: int = 1, gpu: int = 0) -> bool:
        """Whether so many threads stand while nothing executes; in one copy, as a burst may begin in between."""
        work = self.work(gpu)
        return (work.launched_ns, work.standing) == (0, threads)

    def told_ns(self, gpu: int = 0) -> int:
        """How long the GPU executed its ended bursts, as the library tells it."""
        work = self.work(gpu)
        return int(work.sure_ns + work.sliced_ns)


@contextmanager
def launching(node: Node, container: Container, root: Path) -> Iterator[Launcher]:
    """One with a context on the first GPU."""
    with Launcher(node, container, root) as launcher:
        yield launcher
