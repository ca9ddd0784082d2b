"""MIG instances in decisions: GPUs like others, but one program can use one of them alone."""

import msgspec

from placer.core.ledger import Ledger
from placer.core.plan import Plan
from placer.core.policies.headroom import HEADROOM
from placer.core.reasons import Reason
from placer.core.refusal import Refusal
from placer.core.view import node_view
from plimsoll.demand import ContainerDemand
from plimsoll.events import Gpu
from plimsoll.ids import GpuUuid
from tests.placer.core.worlds import best_effort, declared, gpu, plan, request, state, whole


def instance(uuid: str, usable_gib: int = 5) -> Gpu:
    """A MIG instance."""
    return msgspec.structs.replace(gpu(uuid, usable_gib=usable_gib), mig_parent=GpuUuid("card"))


def decided(gpus: tuple[Gpu, ...], *containers: ContainerDemand) -> Plan | Refusal:
    """The decision on a pod, with one node."""
    return plan(request("p", *containers), [node_view(state("n", *gpus))], Ledger(), HEADROOM)


def test_a_container_takes_an_instance_like_any_gpu() -> None:
    """Whether it declares memory, none, or wants a whole GPU; the instance's own memory counts."""
    for demand in (declared("main", 4), best_effort(), whole()):
        placed = decided((instance("MIG-a"),), demand)
        assert isinstance(placed, Plan)
        assert [grant.gpu for grant in placed.booking.grants] == ["MIG-a"]
    refused = decided((instance("MIG-a"), instance("MIG-b")), declared("main", 8))
    assert isinstance(refused, Refusal)
    assert list(refused.reasons.values()) == [(Reason.GPU_MEMORY.value,)]


def test_two_containers_take_two_instances() -> None:
    """The containers of a pod are programs of their own."""
    placed = decided((instance("MIG-a"), instance("MIG-b")), declared("one", 4), declared("two", 4))
    assert isinstance(placed, Plan)
    assert {grant.gpu for grant in placed.booking.grants} == {"MIG-a", "MIG-b"}


def test_a_container_of_several_gpus_gets_whole_ones() -> None:
    """CUDA shows a program one instance, and no whole GPU beside it."""
    instances = (instance("MIG-a", 40), instance("MIG-b", 40))
    for demand in (declared("main", 4, gpus=2), whole(gpus=2)):
        refused = decided(instances, demand)
        assert isinstance(refused, Refusal)
        assert list(refused.reasons.values()) == [(Reason.MIG_ALONE.value,)]
        placed = decided((*instances, gpu("GPU-a"), gpu("GPU-b")), demand)
        assert isinstance(placed, Plan)
        assert {grant.gpu for grant in placed.booking.grants} == {"GPU-a", "GPU-b"}
        short = decided((*instances, gpu("GPU-a")), demand)
        assert isinstance(short, Refusal)
        assert list(short.reasons.values()) == [(Reason.GPU_COUNT.value,)]
