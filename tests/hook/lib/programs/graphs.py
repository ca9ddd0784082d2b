"""Graphs that allocate memory."""

import threading
from ctypes import byref, c_void_p

from tests.hook.lib.programs.calls import call, context, free, make, must, take
from tests.programs.cuda import SIZE, U64
from tests.programs.structures import Location, NodeProps, PoolProps

stream = make("cuStreamCreate", 1)
launched: list[int] = []


def by_hand(size: int, device: int = 0, freed: bool = True) -> tuple[c_void_p, int]:  # noqa: FBT001, FBT002 - named
    """A graph of an allocation and its free: executable graph and address."""
    graph = make("cuGraphCreate", 0)
    params = NodeProps(PoolProps(1, 0, Location(1, device)), None, 0, size)
    node = make("cuGraphAddMemAllocNode", graph, None, SIZE(0), byref(params))
    if freed:
        make("cuGraphAddMemFreeNode", graph, byref(node), SIZE(1), U64(params.address))
    return make("cuGraphInstantiateWithFlags", graph, U64(0)), params.address


def captured(size: int) -> tuple[c_void_p, int]:
    """The same, captured from a stream."""
    must("cuStreamBeginCapture_v2", stream, 2)
    code, address = take(size, stream)
    assert code == 0
    free(address, stream)
    graph = c_void_p()
    must("cuStreamEndCapture", stream, byref(graph))
    return make("cuGraphInstantiateWithFlags", graph, U64(0)), address


def launch(graph: c_void_p, on: c_void_p | None = None) -> int:
    """Launches a graph: code."""
    return call("cuGraphLaunch", graph, on or stream)


def launch_aside(graph: c_void_p) -> threading.Thread:
    """Launches a graph in a thread of its own, which puts the code into `launched`."""

    def run() -> None:
        context(0)
        launched.append(launch(graph))

    thread = threading.Thread(target=run)
    thread.start()
    return thread
