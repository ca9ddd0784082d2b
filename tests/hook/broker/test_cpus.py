"""A container is bound to the CPUs near its GPUs: by the broker's page and the library, over the emulated driver."""

import os
from pathlib import Path

import pytest

from plimsoll.broker.client import RefusedError
from plimsoll.broker.pages import CPUS_NAME
from plimsoll.broker.wire import ContainerLines, Line, Register
from plimsoll.cpus import ranges
from plimsoll.ids import ContainerName
from tests.hook.broker.conftest import GIB, MAIN, POD, Broker
from tests.hook.broker.test_library import GPU, emulated_node, start_program

OWN_CPUS = sorted(os.sched_getaffinity(0))


def bound(cpus: str, name: ContainerName = MAIN) -> Register:
    """A pod of one container with a line on one GPU, bound to these CPUs."""
    container = ContainerLines(name=name, lines=(Line(gpu=GPU, line_bytes=GIB),), cpus=cpus)
    return Register(pod=POD, namespace="default", name="train", containers=(container,))


@pytest.mark.skipif(len(OWN_CPUS) < 2, reason="a binding shows with two CPUs only")
@pytest.mark.parametrize(
    ("cpus", "allowed"),
    [
        (ranges(OWN_CPUS[-1:]), OWN_CPUS[-1:]),
        (ranges([OWN_CPUS[0], 1023]), OWN_CPUS[:1]),
        ("1022-1023", OWN_CPUS),
        ("", OWN_CPUS),
    ],
    ids=["one", "within-the-own-cpuset", "none-of-the-own", "unbound"],
)
async def test_program_threads_and_children_are_bound(
    broker: Broker, tmp_path: Path, cpus: str, allowed: list[int]
) -> None:
    """`Cpus_allowed_list` of program, thread and child process is those of the near CPUs that it may use."""
    await broker.client.register(bound(cpus))
    program = await start_program(broker, emulated_node(tmp_path))
    assert await program.do("begin") == "0 0 0"
    assert (await program.do("cpus")).split() == [ranges(allowed)] * 3


async def test_a_later_registration_changes_the_page(broker: Broker) -> None:
    """The page is rewritten for programs that start later, and removed when the container is no longer bound."""
    page = broker.limits_dir() / CPUS_NAME
    await broker.client.register(bound("0-3,8"))
    first = page.read_bytes()
    await broker.client.register(bound("64"))
    assert page.read_bytes() != first
    await broker.client.register(bound(""))
    assert not page.exists()


async def test_no_list_of_cpus_is_refused(broker: Broker) -> None:
    """An impossible list is refused with field, value and remedy."""
    for cpus in ("0-", "4-1", "1024", "all"):
        with pytest.raises(RefusedError, match=r"containers\[0\].cpus: .* is no list of CPUs; write"):
            await broker.client.register(bound(cpus))
