"""A node's hardware from its `node.info`, and the CPUs that a pod is bound to."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from placer.core.ledger import Ledger
from placer.core.plan import Plan
from placer.core.planning import plan_on
from placer.core.policies.headroom import HEADROOM
from placer.core.policy_context import Request
from placer.core.topology.hardware import Hardware, hardware_of
from placer.core.topology.links import FARTHEST, GpuLink
from placer.core.view import node_view
from plimsoll.gpu_events import GpuInfo, Link, NodeInfo
from plimsoll.ids import ContainerName, GpuUuid, NodeName
from tests.placer.core.worlds import declared, gpu, request, state


def info(*gpus: tuple[str, str, Sequence[tuple[str, str, int]]]) -> NodeInfo:
    """The hardware of a node: each GPU with its CPUs and links."""
    return NodeInfo(
        node=NodeName("n"),
        heartbeat_s=60,
        driver="580",
        gpus=tuple(
            GpuInfo(
                uuid=GpuUuid(uuid),
                index=index,
                model="NVIDIA L4",
                pci="",
                cores=cores,
                links=tuple(
                    Link(gpu=GpuUuid(other), path=path, nvlinks=nvlinks) for other, path, nvlinks in links
                ),
            )
            for index, (uuid, cores, links) in enumerate(gpus)
        ),
    )


def of(*gpus: tuple[str, str, Sequence[tuple[str, str, int]]]) -> Hardware:
    """The hardware as decisions read it."""
    return hardware_of(info(*gpus))


def test_links_fill_the_matrix_from_either_end() -> None:
    """A link that one end alone reports counts for both; an unknown path, or none, is the farthest."""
    found = of(("a", "", [("b", "PIX", 0), ("c", "", 4)]), ("b", "", []), ("c", "", [("a", "PHB", 0)]))
    a, b, c = (found.places[GpuUuid(uuid)] for uuid in "abc")
    assert (found.matrix[a][b], found.matrix[b][a]) == (GpuLink("PIX"), GpuLink("PIX"))
    assert (found.matrix[a][c], found.matrix[b][c]) == (GpuLink("SYS", 4), FARTHEST)
    assert found.levels([GpuUuid("c"), GpuUuid("b"), GpuUuid("a")]) == "SYS, PIX, NVLINK"


@pytest.mark.parametrize(
    ("hardware", "cpus", "note"),
    [
        (of(("g0", "0-3,8", []), ("g1", "2-5", [])), {"main": "0-5,8"}, ""),
        (
            of(("g0", "0-3", []), ("g1", "", [])),
            {},
            "not bound to CPUs, as node n names none near the GPUs: main",
        ),
        (None, {}, "not bound to CPUs, as node n names none near the GPUs: main"),
    ],
    ids=["both", "one-unknown", "no-node-info"],
)
def test_a_pod_is_bound_near_its_gpus(hardware: Hardware | None, cpus: dict[str, str], note: str) -> None:
    """The CPUs are those near at least one GPU of the container; where a GPU's are not known, the plan says so."""
    node = replace(node_view(state("n", gpu("g0"), gpu("g1"))), hardware=hardware)
    plain = request("p", declared("main", 8, gpus=2))
    wanting = Request(plain.pod, replace(plain.demand, cpu_affinity=True))
    planned = plan_on(wanting, node, Ledger(), HEADROOM)
    assert isinstance(planned, Plan)
    assert (planned.cpus, planned.note) == ({ContainerName(name): each for name, each in cpus.items()}, note)
    unbound = plan_on(plain, node, Ledger(), HEADROOM)
    assert isinstance(unbound, Plan)
    assert (unbound.cpus, unbound.note) == ({}, "")
