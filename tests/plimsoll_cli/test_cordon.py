"""`plimsoll cordon`: the GPU that a name means."""

import pytest
from msgspec.structs import replace

from plimsoll.gpu_events import HealthClass
from plimsoll.ids import GpuUuid, NodeName
from plimsoll.part.errors import InputError
from plimsoll_cli.cordon import target_of
from tests.plimsoll_cli.test_gpus import NODE, ROW, ill

CARD = GpuUuid("GPU-ccc")
A = replace(
    NODE,
    node=NodeName("a"),
    gpus=(replace(ROW, uuid=GpuUuid("GPU-aa1"), index=0), replace(ROW, uuid=GpuUuid("GPU-ab1"), index=1)),
    health=(ill("GPU-lost", "lost", HealthClass.FATAL, "NVML does not list it any more"),),
    stale_cordons=("GPU-old", "nonsense"),
)
B = replace(
    NODE,
    node=NodeName("b"),
    gpus=(
        replace(ROW, uuid=GpuUuid("MIG-1"), index=0, mig_parent=CARD, cordoned=True),
        replace(ROW, uuid=GpuUuid("MIG-12"), index=0, mig_parent=CARD, cordoned=True),
        replace(
            ROW, uuid=GpuUuid("GPU-aa1"), index=1
        ),  # the card came from node `a`, whose last report has it
    ),
)


@pytest.mark.parametrize(
    ("name", "node", "uuid"),
    [
        ("GPU-ab1", "a", "GPU-ab1"),
        ("GPU-ab", "a", "GPU-ab1"),
        ("a/0", "a", "GPU-aa1"),
        ("b/1", "b", "GPU-aa1"),
        ("b/0", "b", CARD),
        (CARD, "b", CARD),
        ("MIG-1", "b", "MIG-1"),
        ("GPU-l", "a", "GPU-lost"),
        ("GPU-old", "a", "GPU-old"),
        ("nonsense", "a", "nonsense"),
    ],
)
def test_a_gpu_is_named_by_uuid_beginning_or_place(name: str, node: str, uuid: str) -> None:
    """A place means a divided card as a whole; a lost card, and a cordon that is stale, can be named too."""
    target = target_of(name, [A, B])
    assert (target.node, target.uuid) == (node, uuid)
    if uuid == CARD:
        assert target.members == {CARD, "MIG-1", "MIG-12"}


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("GPU-x", "GPU: 'GPU-x' is no GPU of a node that reports; see `plimsoll gpus"),
        ("a/7", "is no GPU of a node"),
        ("a/", "is no GPU of a node"),
        ("/0", "is no GPU of a node"),
        ("GPU-aa1", "names several GPUs: a: GPU-aa1, b: GPU-aa1; write more of the UUID, or node/index"),
        ("GPU-", "names several GPUs"),
    ],
)
def test_a_name_that_means_no_one_gpu_is_refused(name: str, problem: str) -> None:
    """The error has the name, and what to write."""
    with pytest.raises(InputError, match=problem):
        target_of(name, [A, B])
