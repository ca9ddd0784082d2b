"""The shortages of a node for a waiting pod, and whether pods of lower priority hold it."""

from dataclasses import replace

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from placer.core.booking import Booking, Grant
from placer.core.explain.shortage import Freeing, PodIdentity
from placer.core.ledger import Ledger
from placer.core.plan import Plan
from placer.core.planning import plan_on
from placer.core.policies import POLICIES
from placer.core.room import room_on
from placer.core.view import node_view
from plimsoll.demand import ContainerDemand
from plimsoll.events import Gpu
from plimsoll.ids import ContainerName, GpuUuid, NodeName, PodUid
from plimsoll.placer_api.explain import NodeShortage
from plimsoll.quantity import GIB
from tests.placer.core.worlds import best_effort, declared, gpu, request, state, task, whole

NODE = NodeName("n1")


def holding(pod: str, uuid: str, gib: float, share_pct: int = 0, *, all_of_it: bool = False) -> Booking:
    """A booking of a pod whose name begins with its namespace: `team-a/job`."""
    size = int(gib * GIB)
    grant = Grant(
        ContainerName("main"), GpuUuid(uuid), None if all_of_it else size, share_pct, 100, all_of_it, size
    )
    return Booking(PodUid(pod), NODE, (grant,))


def lacking(
    demand: ContainerDemand | tuple[ContainerDemand, ...],
    gpus: tuple[Gpu, ...],
    *held: Booking,
    priority: int = 0,
    priorities: dict[str, int] | None = None,
) -> tuple[float, NodeShortage] | None:
    """The shortages of a node with these GPUs and bookings for a pod."""
    ledger = Ledger()
    for booking in held:
        ledger.restore(booking)

    def identify(uid: PodUid) -> PodIdentity | None:
        namespace, _, name = uid.partition("/")
        return PodIdentity(namespace, name, (priorities or {}).get(uid, 0)) if name else None

    demands = demand if isinstance(demand, tuple) else (demand,)
    return freeable(Freeing(request("p", *demands), POLICIES["headroom"], priority, ledger, identify), gpus)


def freeable(freeing: Freeing, gpus: tuple[Gpu, ...]) -> tuple[float, NodeShortage] | None:
    """The shortages of a node with these GPUs."""
    view = node_view(state(NODE, *gpus))
    return freeing.on(view, {one.uuid: room_on(NODE, one, freeing.ledger) for one in view.gpus})


def text(found: tuple[float, NodeShortage] | None) -> str:
    """The text for people."""
    assert found is not None
    return found[1].text


def test_the_missing_memory_and_its_holders_are_named() -> None:
    """The text names GPU, missing bytes, and the pods of each namespace with the memory that counts for them."""
    held = (holding("a/x", "G", 10), holding("a/y", "G", 8), holding("b/z", "G", 2))
    found = lacking(declared("main", 7.2), (gpu("G"),), *held)
    assert text(found) == "n1 G lacks 3.2Gi; 2 pods of a hold 18Gi, 1 pod of b holds 2Gi"


def test_memory_counts_as_measured_where_that_is_more() -> None:
    """A pod that holds more than it declared would free what it holds; memory of no pod is named apart."""
    measured = gpu("G", task("a/x", "G", 20 * GIB), task(None, "G", 2 * GIB))
    found = lacking(declared("main", 4), (measured,), holding("a/x", "G", 10))
    assert text(found) == "n1 G lacks 2Gi; 1 pod of a holds 20Gi, processes of no known pod hold 2Gi"


def test_missing_compute_time_is_named_with_the_shares() -> None:
    """The text names the missing share, and the share that the pods hold."""
    found = lacking(declared("main", 1, share_pct=50), (gpu("G"),), holding("a/x", "G", 4, share_pct=80))
    assert text(found) == "n1 G lacks 30 % of compute time; 1 pod of a holds 4Gi and 80 %"


def test_a_gpu_that_is_too_small_is_never_offered_as_freeable() -> None:
    """A GPU that would not do even if it were empty is said to be too small, and ranks behind any other."""
    small, large = gpu("S", usable_gib=16), gpu("L", usable_gib=24)
    found = lacking(declared("main", 20), (small, large), holding("a/x", "L", 23))
    assert text(found) == "n1 L lacks 19Gi; 1 pod of a holds 23Gi"
    found = lacking(declared("main", 20), (small,), priority=5)
    assert text(found) == "n1 S would not fit the container even if all pods there ended: it has 16Gi"
    assert found is not None
    assert not found[1].lower_priority_suffices


def test_of_several_gpus_those_that_lack_least_are_named() -> None:
    """A container of two GPUs where one fits needs only the nearest of the others."""
    held = (holding("a/x", "A", 23), holding("a/y", "B", 20), holding("a/z", "C", 22))
    found = lacking(declared("main", 6, gpus=2), (gpu("A"), gpu("B"), gpu("C"), gpu("D")), *held)
    assert text(found) == "n1 B lacks 2Gi; 1 pod of a holds 20Gi"


def test_whole_gpus_lack_emptiness() -> None:
    """For a whole GPU, any pod on it is in the way; a GPU of one container alone takes no other."""
    found = lacking(whole(), (gpu("G"),), holding("a/x", "G", 1))
    assert text(found) == "n1 G is in use, and a whole GPU was asked for; 1 pod of a holds 1Gi"
    owned = holding("a/x", "G", 24, 100, all_of_it=True)
    assert text(lacking(declared("main", 1), (gpu("G"),), owned)).startswith(
        "n1 G belongs to one container alone"
    )


def test_containers_that_fit_one_by_one() -> None:
    """Where each container fits alone, nothing is said to be lacking on one GPU."""
    found = lacking((declared("one", 14), declared("two", 14)), (gpu("G"),))
    assert text(found) == "n1: each container fits alone, and all together do not"


def test_freeing_cannot_help_without_a_gpu_of_the_model() -> None:
    """A node without enough GPUs of the requested kind is not mentioned."""
    assert lacking(declared("main", 1, gpus=2), (gpu("G"),)) is None


def test_gpus_of_a_model_that_the_owners_pods_do_not_have_are_none_to_free() -> None:
    """With the policy `topology`, only the GPU of the owner's model is named, although another one lacks less."""
    ledger, gpus = Ledger(), (gpu("G"), msgspec.structs.replace(gpu("H"), model="NVIDIA A10"))
    ledger.owner_models.learn(state(NODE, *gpus))
    ledger.restore(replace(holding("a/x", "G", 20), owner="Deployment a/web"))
    ledger.restore(holding("a/y", "H", 16))
    asked = request("p", declared("main", 12), owner="Deployment a/web")
    found = freeable(Freeing(asked, POLICIES["topology"], 0, ledger, lambda _: None), gpus)
    assert text(found).startswith("n1 G lacks 8Gi")
    asked = request("p", declared("main", 12, gpus=2), owner="Deployment a/web")
    assert freeable(Freeing(asked, POLICIES["topology"], 0, ledger, lambda _: None), gpus) is None


def test_an_unknown_pod_is_counted_without_a_name() -> None:
    """A booking whose pod the watch has not shown counts, and is no pod of lower priority."""
    found = lacking(declared("main", 10), (gpu("G"),), holding("ghost", "G", 20), priority=1000)
    assert text(found) == "n1 G lacks 6Gi; 1 pod holds 20Gi"
    assert found is not None
    assert not found[1].lower_priority_suffices


sizes = st.floats(0.5, 12)


@given(
    held=st.lists(st.tuples(sizes, st.integers(0, 30), st.integers(0, 3)), max_size=4),
    asked=st.sampled_from([declared("main", 9, 40), declared("main", 20), best_effort(), whole()]),
    priority=st.integers(0, 3),
)
def test_what_preemption_would_do_is_what_the_planner_says(
    held: list[tuple[float, int, int]], asked: ContainerDemand, priority: int
) -> None:
    """The pod is said to fit without the pods of lower priority exactly when the planner places it without them."""
    bookings = [holding(f"a/{i}", "G", size, share) for i, (size, share, _) in enumerate(held)]
    priorities = {f"a/{i}": one[2] for i, one in enumerate(held)}
    found = lacking(asked, (gpu("G"),), *bookings, priority=priority, priorities=priorities)
    kept = Ledger()
    for booking in bookings:
        if priorities[booking.pod] >= priority:
            kept.restore(booking)
    view = replace(node_view(state(NODE, gpu("G"))))
    fits = isinstance(plan_on(request("p", asked), view, kept, POLICIES["headroom"]), Plan)
    if found is not None and found[1].gpus:
        assert found[1].lower_priority_suffices == fits
