"""The causes of refusals, and the causes that changes lift, without servers."""

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placer.core.ledger import Ledger
from placer.core.locality import GpuLabels
from placer.core.reasons import Reason
from placer.core.room import Room, misfit
from placer.core.view import GpuView
from placer.scheduler.plugins import node_declared_features
from placer.scheduler.plugins.kubelet_admission import SUPPLEMENTAL_GROUPS
from placer.scheduler.plugins.node_affinity import REASON as NODE_AFFINITY
from placer.scheduler.plugins.node_ports import REASON as PORTS
from placer.scheduler.plugins.node_resources_fit import TOO_MANY_PODS
from placer.scheduler.plugins.taint_toleration import NOT_READY
from placer.scheduler.profile import Profile
from placer.scheduler.queue.queueing_hints import (
    EVERYTHING,
    NOTHING,
    Cause,
    any_cause,
    best_bytes,
    causes_of,
    event_of_rooms,
    largest_request,
)
from plimsoll.demand import ContainerDemand, PodDemand
from plimsoll.ids import ContainerName, GpuUuid, NodeName
from plimsoll.kube.models import Node
from plimsoll.locality import NO_LABELS, Locality
from plimsoll.quantity import MIB
from tests.placer.core.worlds import percent
from tests.slow import examples

N1 = NodeName("n1")
MEMORY = Cause.MEMORY | Cause.MEMORIES
FRAMEWORK = Profile(Ledger()).framework
CAUSE_OF = FRAMEWORK.cause


def demand_of(*bytes_each: int | None, share: int = 0, whole: bool = False, gpus: int = 1) -> PodDemand:
    """A pod with a container for each of these declarations."""
    return PodDemand(
        tuple(
            ContainerDemand(ContainerName(f"c{index}"), gpus, size, share, 100, whole)
            for index, size in enumerate(bytes_each)
        )
    )


def room(free: int, *, share: int = 100, sharers: int = 0, alien: int = 0, usable: int = 100) -> Room:
    """A room without overcommit."""
    gpu = GpuView(GpuUuid("g"), "L4", usable, usable - free, 100.0, 1.0, {})
    return Room(gpu, free, free, 0, share, sharers, alien, taken_whole=False)


def rooms(*of_each: Room) -> dict[GpuUuid, Room]:
    """The rooms of several GPUs."""
    return {GpuUuid(f"g{index}"): one for index, one in enumerate(of_each)}


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        (Reason.GPU_MEMORY.value, NOTHING),
        (Reason.GPU_SHARE.value, Cause.SHARE),
        (Reason.GPU_COUNT.value, Cause.SHARE | Cause.OCCUPANCY | Cause.LABELS),
        (Reason.EXCLUDED.value, Cause.LABELS),
        (Reason.NO_REPORT.value, Cause.GPUS),
        ("Insufficient cpu", Cause.RESOURCES),
        ("Insufficient plimsoll.dev/gpu-memory", Cause.RESOURCES),
        (TOO_MANY_PODS, Cause.RESOURCES),
        (PORTS, Cause.RESOURCES),
        (NODE_AFFINITY, Cause.NODE),
        (NOT_READY, Cause.NODE),
        (SUPPLEMENTAL_GROUPS, Cause.NODE),
        (node_declared_features.REASON, Cause.NODE),
        ("node(s) had untolerated taint {k: v}", Cause.NODE),
        ("a reason of tomorrow", EVERYTHING & ~Cause.MEMORIES & ~Cause.PERCENTAGE),
    ],
)
def test_reasons_have_causes(reason: str, cause: Cause) -> None:
    """Each reason stands for its cause, and memory is always a possible cause of a pod that declares some."""
    assert causes_of([reason], demand_of(5), CAUSE_OF) == cause | Cause.MEMORY


@pytest.mark.parametrize("demand", [demand_of(5), demand_of(None, whole=True), PodDemand(())])
def test_refusal_without_a_node_may_have_any_cause(demand: PodDemand) -> None:
    """Without a node there is no reason, and the first node may lift whatever keeps the pod waiting."""
    assert causes_of([], demand, CAUSE_OF) == any_cause(demand)


@pytest.mark.parametrize("reason", Reason)
def test_each_reason_of_a_gpu_is_known(reason: Reason) -> None:
    """Each reason of a GPU has its own cause, and none counts as unknown."""
    assert Cause.RULES not in causes_of([reason.value], demand_of(5), CAUSE_OF)


def test_pods_that_memory_cannot_keep_out_have_no_such_cause() -> None:
    """Whole GPUs, and pods without a GPU, do not wait for bytes; several containers wait for more than one room."""
    assert causes_of([Reason.GPU_NOT_EMPTY.value], demand_of(None, whole=True), CAUSE_OF) == Cause.OCCUPANCY
    assert causes_of(["Insufficient cpu"], PodDemand(()), CAUSE_OF) == Cause.RESOURCES
    assert any_cause(PodDemand(())) == Cause.RESOURCES | Cause.NODE | Cause.RULES | Cause.VOLUMES
    memory = [Reason.GPU_MEMORY.value]
    some_gpu = Cause.SHARE | Cause.OCCUPANCY | Cause.LABELS
    assert causes_of(memory, demand_of(5, 6), CAUSE_OF) == Cause.MEMORIES | some_gpu
    assert causes_of(memory, demand_of(5, gpus=2), CAUSE_OF) == Cause.MEMORIES
    assert causes_of(memory, demand_of(None), CAUSE_OF) == Cause.MEMORIES
    demands = (demand_of(5, None, 7), demand_of(None), PodDemand(()))
    assert [largest_request(one) for one in demands] == [7, 0, 0]
    part = PodDemand((percent("c0", 40),))
    assert (causes_of(memory, part, CAUSE_OF), largest_request(part)) == (Cause.PERCENTAGE, 40)
    for several in (
        PodDemand((percent("c0", 40), percent("c1", 40))),
        PodDemand((percent("c0", 40, gpus=2),)),
    ):
        assert causes_of(memory, several, CAUSE_OF) & ~some_gpu == Cause.MEMORIES
        assert largest_request(several) == 0


def test_event_names_the_bytes_between_which_it_helps() -> None:
    """Pods that fitted before, or ask for more than the best GPU has, gain nothing from more memory."""
    event = event_of_rooms(N1, rooms(room(10), room(50)), rooms(room(20), room(50)))
    assert (event.causes, event.best_bytes, event.above_bytes, event.up_to_bytes) == (MEMORY, 50, 10, 20)


@pytest.mark.parametrize(
    ("before", "after", "causes"),
    [
        (room(10), room(10), NOTHING),
        (room(10), room(9), NOTHING),
        (room(10, share=50), room(10, share=60), Cause.SHARE),
        (room(10, sharers=2), room(10, sharers=1), Cause.OCCUPANCY),
        (room(10, sharers=1), room(10, sharers=2), NOTHING),
        (room(10, alien=2**40), room(10), Cause.OCCUPANCY),
        (room(10), room(11, share=50), MEMORY),
    ],
)
def test_event_of_one_gpu(before: Room, after: Room, causes: Cause) -> None:
    """A quantity that rose lifts its cause, and a quantity that fell or stayed lifts none."""
    assert event_of_rooms(N1, rooms(before), rooms(after)).causes == causes


def test_overbooked_gpus_still_give_nothing() -> None:
    """A pod that declares no bytes is concerned also by a node whose GPUs are promised more than they have."""
    assert best_bytes([room(-10), room(-5)]) == best_bytes([]) == 0


def test_gpu_that_appeared_may_lift_everything_that_gpus_are_asked_for() -> None:
    """A new GPU may help every pod that asks for a GPU and that it is large enough for."""
    event = event_of_rooms(N1, rooms(room(10)), rooms(room(10), room(30)))
    of_gpus = EVERYTHING & ~any_cause(PodDemand(()))
    assert (event.causes, event.best_bytes, event.above_bytes) == (of_gpus, 30, -1)
    assert event.up_to_bytes >= 30


ROOMS = st.builds(
    lambda free, share, sharers, alien, labels: replace(
        room(free, share=share, sharers=sharers, alien=alien * 2**28, usable=100), labels=labels
    ),
    st.integers(0, 100),
    st.integers(0, 100),
    st.integers(0, 31),
    st.integers(0, 4),
    st.builds(
        GpuLabels,
        st.just(frozenset()),
        st.frozensets(st.sampled_from(["x", "y"])),
        st.frozensets(st.sampled_from([None, "x", "y"]), max_size=2),
    ),
)
LABELS = st.builds(Locality, st.none(), st.sampled_from([None, "x"]), st.sampled_from([None, "x"]))


@given(
    st.lists(st.tuples(ROOMS, ROOMS), min_size=1, max_size=3),
    st.one_of(st.none(), st.integers(1, 110)),
    st.integers(0, 100),
    st.booleans(),
    LABELS,
)
def test_no_gpu_comes_to_fit_without_an_event_that_concerns_the_pod(
    changes: list[tuple[Room, Room]],
    size: int | None,
    share: int,
    whole: bool,  # noqa: FBT001 - only `given` calls this
    labels: Locality,
) -> None:
    """If a container fits on a GPU after a change and did not before, the event has its bytes and a cause of it."""
    demand = demand_of(None if whole else size, share=0 if whole else share, whole=whole)
    (container,) = demand.containers
    expected = size or 1
    for before, after in changes:
        reason = misfit(before, container, expected, labels)
        if reason is None or misfit(after, container, expected, labels) is not None:
            continue
        event = event_of_rooms(N1, rooms(*(old for old, _ in changes)), rooms(*(new for _, new in changes)))
        concerned = event.causes & causes_of([reason.value], demand, CAUSE_OF)
        assert concerned
        assert largest_request(demand) <= event.best_bytes
        if concerned == Cause.MEMORY:
            assert event.above_bytes < largest_request(demand) <= event.up_to_bytes
    assert best_bytes(after for _, after in changes) == max(after.free_bytes for _, after in changes)


@given(
    st.lists(
        st.tuples(*[st.tuples(st.sampled_from([100, 150, 400]), st.integers(-1, 401))] * 2),
        min_size=1,
        max_size=3,
    ),
    st.integers(1, 100),
)
@settings(max_examples=examples(500))
def test_no_gpu_comes_to_fit_a_percentage_without_an_event_that_concerns_it(
    changes: list[tuple[tuple[int, int], tuple[int, int]]], memory_pct: int
) -> None:
    """If a GPU has the declared part of its memory free and had not before, the event names that percentage.

    The GPU may have another size by then, so that fewer bytes are a larger part.
    """
    demand = PodDemand((percent("c0", memory_pct),))
    sizes = [tuple(room(free * MIB, usable=usable * MIB) for usable, free in pair) for pair in changes]
    event = event_of_rooms(N1, rooms(*(old for old, _ in sizes)), rooms(*(new for _, new in sizes)))
    fits = [
        [
            misfit(one, here, here.memory_bytes or 0, NO_LABELS) is None
            for one in pair
            for here in [only.on(one.gpu.usable_bytes)]
        ]
        for pair in sizes
        for only in demand.containers
    ]
    if any(after and not before for before, after in fits):
        assert event.causes & causes_of([Reason.GPU_MEMORY.value], demand, CAUSE_OF) == Cause.PERCENTAGE
        assert event.above_pct < largest_request(demand) <= event.up_to_pct
        assert event.best_bytes


def node(**fields: object) -> Node:
    """A node with these labels, taints, amounts, and so on."""
    document = {
        "metadata": {"name": "n", "labels": fields.get("labels", {})},
        "spec": {"taints": fields.get("taints", []), "unschedulable": fields.get("cordoned", False)},
        "status": {
            "allocatable": fields.get("amounts", {"cpu": "4", "x/y": "1"}),
            "conditions": [{"type": "Ready", "status": fields.get("ready", "True")}],
            "features": fields.get("features"),
            "declaredFeatures": fields.get("declared"),
        },
    }
    return msgspec.convert(document, Node)


TAINT = {"key": "k", "value": "v", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("old", "new", "causes"),
    [
        ({}, {}, NOTHING),
        ({"taints": [TAINT]}, {}, Cause.NODE),
        ({}, {"taints": [TAINT]}, NOTHING),
        ({"cordoned": True}, {}, Cause.NODE),
        ({}, {"cordoned": True}, NOTHING),
        ({"ready": "False"}, {}, Cause.NODE),
        ({}, {"ready": "Unknown"}, NOTHING),
        ({"ready": "Unknown"}, {"ready": "False"}, Cause.NODE),
        ({}, {"features": {"supplementalGroupsPolicy": True}}, Cause.NODE),
        ({}, {"declared": ["FeatureOfTomorrow"]}, Cause.NODE),
        ({}, {"labels": {"zone": "a"}}, Cause.NODE | Cause.RULES | Cause.VOLUMES),
        ({}, {"amounts": {"cpu": "4500m", "x/y": "1"}}, Cause.RESOURCES),
        ({}, {"amounts": {"cpu": "4000m", "x/y": "1"}}, NOTHING),
        ({}, {"amounts": {"cpu": "3", "x/y": "1"}}, NOTHING),
        ({}, {"amounts": {"cpu": "4"}}, Cause.RESOURCES),
        ({"amounts": {"cpu": "4x"}}, {}, Cause.RESOURCES),
    ],
)
def test_only_changes_for_the_better_lift_causes(
    old: dict[str, object], new: dict[str, object], causes: Cause
) -> None:
    """A node that got worse, or wrote the same amount otherwise, helps no pod."""
    assert FRAMEWORK.gains(node(**new), node(**old)) == causes
