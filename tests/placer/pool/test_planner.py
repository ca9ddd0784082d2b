"""GPUs join and leave the pool as pods and the policy need it, whatever happens to reservations."""

from dataclasses import replace

import msgspec
import pytest

from placer.core.pool import Pool, PoolPart
from placer.core.schedulability import Schedulability
from placer.core.view import node_view
from placer.pool.core.packing import Packing
from placer.pool.core.planner import PINNED_RETRY_S, RETRY_S, SETTLE_S, reservation_name
from placer.pool.core.release_policy import ReleasePolicy, release_policy_of
from placer.pool.core.steps import Drop, Keep, Reserve
from plimsoll.demand import PodDemand
from plimsoll.ids import GpuUuid, NodeName, PodUid
from plimsoll.locality import Locality
from plimsoll.part.errors import InputError
from plimsoll.pool import Release, acquiring_on, wanted_nodes
from tests.placer.core.worlds import gpu, state
from tests.placer.kube.objects import pod_of
from tests.placer.pool.model import ACQUIRE_S, NODE, Model, best_effort, sharing, whole


def test_a_card_joins_for_a_pod_and_leaves_with_it() -> None:
    """On demand: creation, active, idle, deletion."""
    model = Model()
    model.settle()
    assert model.pool == []
    model.wait("a")
    model.settle()
    assert model.pool == ["GPU-0"]
    model.use("a", GpuUuid("GPU-0"))
    model.settle(100)
    assert model.pool == ["GPU-0"]
    model.end("a", GpuUuid("GPU-0"))
    model.settle()
    assert model.pool == []


def test_a_release_waits_for_the_placer() -> None:
    """The reservation stays until the placer has granted, and a pod that came meanwhile keeps the card."""
    model = Model()
    model.wait("a")
    model.settle()
    model.facts.waiting.clear()
    model.round()
    assert [one.release for one in model.reservations] == [Release.ASKED]
    model.round(1000)
    assert model.pool == ["GPU-0"]
    model.use("b", GpuUuid("GPU-0"))  # decided before the placer saw the request
    planned = model.round()
    assert [type(step) for step in planned.steps] == [Keep]
    model.settle(1000)
    assert [one.release for one in model.reservations] == [None]


def test_a_pod_that_comes_before_the_grant_gets_the_card_back() -> None:
    """A card whose release was asked, or granted, counts as one that may join."""
    model = Model()
    model.wait("a")
    model.settle()
    model.facts.waiting.clear()
    for granted in (False, True):
        model.round()
        if granted:
            model.grant()
        model.wait("b")
        assert model.standing() == replace(model.standing(), gpus=frozenset(), acquirable=3)
        model.round()
        assert model.standing().gpus == frozenset({GpuUuid("GPU-0")})
        model.facts.waiting.clear()


def labelled(**labels: str) -> PodDemand:
    """A small pod with these locality labels."""
    return replace(sharing(10), locality=Locality(**labels))


@pytest.mark.parametrize(
    ("demands", "gpus"),
    [
        ([], 0),
        ([sharing(30)], 1),
        ([best_effort()], 1),
        ([sharing(30)] * 4, 2),
        ([sharing(10, 13)] * 4, 3),
        ([whole(), whole()], 2),
        ([whole(3)], 3),
        ([sharing(10, name="t/a"), sharing(10, name="t/a")], 1),
        ([sharing(10, name="t/a"), sharing(10, name="t/b")], 2),
        ([labelled(anti_affinity="t/a")] * 3 + [labelled(anti_affinity="t/b")], 3),
        ([labelled(exclusion="t/a")] * 2 + [labelled(exclusion="t/b"), sharing(10)], 3),
        ([labelled(exclusion="t/a"), whole()], 2),
    ],
)
def test_no_card_is_taken_in_vain(demands: list[PodDemand], gpus: int) -> None:
    """Exactly as many cards as any packing needs join at once."""
    packing = Packing(24)
    for demand in demands[:-1]:
        packing.add(demand)
    if demands:
        assert packing.gpus(demands[-1]) == gpus
        packing.add(demands[-1])
    assert packing.gpus() == gpus


def test_a_burst_gets_its_cards_at_once_and_one_more_only_if_needed() -> None:
    """Pods that still wait once the cards have joined show that more are needed."""
    model = Model()
    for number in range(4):
        model.wait(f"p{number}")
    model.settle()
    assert model.pool == ["GPU-0", "GPU-1"]
    model.settle(SETTLE_S)  # nobody could use them
    assert len(model.pool) == 3


def test_idle_cards_stay_by_the_policy() -> None:
    """`hybrid` keeps each card for its time, and the ready ones for ever; more are taken before pods come."""
    model = Model(ReleasePolicy(ready=1, idle_s=60))
    model.settle()
    assert len(model.pool) == 1
    model.use("a", model.pool[0])
    model.settle()
    assert len(model.pool) == 2, "one is in use, one is ready"
    model.end("a", model.pool[0])
    model.settle(59)
    assert len(model.pool) == 2
    assert model.last is not None
    assert model.last.due_s == pytest.approx(model.now_s + 1)
    model.settle(1)
    assert len(model.pool) == 1


def test_native_pods_keep_their_cards() -> None:
    """No reservation is made where the device plugin has nothing, and one that lost the race is dropped."""
    model = Model()
    cards = [model.native(name) for name in ("x", "y", "z")]
    model.wait("a")
    model.settle()
    assert model.reservations == []
    model.end_native(cards[1])
    model.round()
    model.native("faster")
    model.schedule()
    planned = model.round()
    assert [step.why for step in planned.steps if isinstance(step, Drop)] == ["the node has no free GPU"]
    assert model.reservations == []
    model.end_native(GpuUuid("GPU-1"))
    assert model.round().steps == (), "after a failure the node has a pause"
    model.settle(RETRY_S)
    assert model.pool == ["GPU-1"]


def test_a_vanished_reservation_is_made_again_until_the_card_is_held() -> None:
    """The kubelet gives another card first. Both are held until the lost one is there, then the other goes back."""
    model = Model()
    model.wait("a")
    model.settle()
    model.use("a", GpuUuid("GPU-0"))
    model.cards[NODE] = [GpuUuid("GPU-2"), GpuUuid("GPU-1"), GpuUuid("GPU-0")]
    [one] = model.reservations
    model.vanish(one)
    planned = model.round()
    assert {card for _, card in planned.lost} == {"GPU-0"}
    assert any(isinstance(step, Reserve) for step in planned.steps)
    model.settle()
    assert model.pool == ["GPU-0"]
    assert model.round().lost == {}


def test_a_lost_card_that_a_native_pod_got_is_told_and_awaited() -> None:
    """Nothing can undo that but the end of one of the two. Until then the other cards stay in the pool."""
    model = Model()
    model.wait("a")
    model.settle()
    model.use("a", GpuUuid("GPU-0"))
    [one] = model.reservations
    model.vanish(one)
    assert model.native("x") == "GPU-0"
    model.settle()
    assert model.last is not None
    assert {card for _, card in model.last.lost} == {"GPU-0"}
    assert model.pool == ["GPU-1", "GPU-2"]
    model.end_native(GpuUuid("GPU-0"))
    model.settle()
    assert model.pool == ["GPU-0"]


def test_a_pinned_card_is_looked_for_and_given_up_for_a_while() -> None:
    """A native pod has the card: the others are not held for ever."""
    model = Model()
    assert model.native("x") == "GPU-0"
    model.wait("a", sharing(30, uuid="GPU-0"))
    model.settle()
    assert model.pool == []
    model.end_native(GpuUuid("GPU-0"))
    model.settle(PINNED_RETRY_S)
    assert model.pool == ["GPU-0"]


def test_another_card_than_the_one_named_is_learned() -> None:
    """After a restart of the node the kubelet may give the reservation another card; the first is lost then."""
    model = Model()
    model.wait("a")
    model.settle()
    model.use("a", GpuUuid("GPU-0"))
    [one] = model.reservations
    model.held = {GpuUuid("GPU-1"): one.uid}
    model.put(replace(one, card=GpuUuid("GPU-1")))
    assert {card for _, card in model.round().lost} == {"GPU-0"}
    model.settle()
    assert model.pool == ["GPU-0"]


@pytest.mark.parametrize("fault", ["silent", "ended", "double"])
def test_reservations_of_no_use_are_dropped(fault: str) -> None:
    """Reservations without use: no card named, ended by the kubelet, or with a card that is held already."""
    model = Model(ReleasePolicy(ready=1))
    model.settle()
    model.facts.reservations.clear()
    model.held.clear()
    model.facts.devices.clear()
    model.round()
    model.schedule()
    model.round()  # it is seen for the first time
    [one] = model.reservations
    if fault == "ended":
        model.put(replace(one, ended=True, problem="UnexpectedAdmissionError"))
    if fault == "double":
        model.put(replace(one, gpu=GpuUuid("GPU-0")))
        model.facts.reservations[NODE][PodUid("z")] = replace(
            one, name="z", uid=PodUid("z"), gpu=GpuUuid("GPU-0")
        )
    planned = model.round(ACQUIRE_S + 1 if fault == "silent" else 0)
    [why] = [step.why for step in planned.steps if isinstance(step, Drop)]
    wording = {
        "silent": "did not name its GPU",
        "ended": "UnexpectedAdmissionError",
        "double": "handed out twice",
    }
    assert wording[fault] in why


def test_a_drained_node_keeps_no_idle_card() -> None:
    """Whatever the policy: nobody can be placed there. Cards in use stay reserved."""
    model = Model(ReleasePolicy(ready=2, idle_s=1000))
    model.settle()
    used = model.pool[0]
    model.use("a", used)
    model.node(schedulable=False)
    model.settle()
    assert model.pool == [used]
    [one] = model.reservations
    model.vanish(one)  # the drain evicts it before the pod
    model.settle()
    assert model.pool == [used]
    model.end("a", used)
    model.settle()
    assert model.pool == []


def test_dedicated_nodes_have_no_reservations() -> None:
    """A node that becomes dedicated gives its idle cards back, and no card of it is ever lost."""
    model = Model(ReleasePolicy(ready=1, idle_s=1000))
    model.settle()
    model.use("a", GpuUuid("GPU-2"))
    model.node(dedicated=True)
    model.settle()
    assert model.last is not None
    assert (model.pool, model.last.lost) == ([], {})


def test_two_controllers_use_the_same_names() -> None:
    """The API server refuses the second controller's reservation, because it exists already."""
    model = Model()
    model.wait("a")
    others = [Model(facts=model.facts).planner.plan(model.facts, now_s) for now_s in (100.0, 101.0)]
    assert [one.steps for one in others] == [(Reserve(NODE, "gpu-0.n1"),)] * 2


def test_a_name_that_another_pod_has_is_passed_over() -> None:
    """A pod that lost its label keeps its name, and so does a stranger; cards are acquired all the same."""
    model = Model()
    for name in ("gpu-0.n1", "gpu-1.n1"):
        pod = pod_of(name, {})
        metadata = msgspec.structs.replace(pod.metadata, namespace="pool")
        model.facts.put_pod(msgspec.structs.replace(pod, metadata=metadata))
    model.wait("a")
    assert model.planner.plan(model.facts, 100.0).steps == (Reserve(NODE, "gpu-2.n1"),)
    model.facts.remove_pod(PodUid("gpu-0.n1"))
    assert Model(facts=model.facts).planner.plan(model.facts, 100.0).steps == (Reserve(NODE, "gpu-0.n1"),)


def test_names_of_reservations_are_names_of_pods() -> None:
    """Also on the node with the longest name."""
    node = NodeName(".".join(["a" * 62] * 4))
    assert len(reservation_name(node, 10)) <= 253


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("on-demand", ReleasePolicy()),
        ("reservation(3)", ReleasePolicy(3)),
        (" hybrid( 1, 300 ) ", ReleasePolicy(1, 300.0)),
    ],
)
def test_policies_are_read(text: str, policy: ReleasePolicy) -> None:
    """As the documents write them."""
    assert release_policy_of("X", text) == policy


@pytest.mark.parametrize("text", ["", "reservation", "hybrid(1)", "on-demand(1)", "reservation(-1)"])
def test_other_texts_are_refused(text: str) -> None:
    """With the remedy."""
    with pytest.raises(InputError, match="on-demand"):
        release_policy_of("X", text)


def test_the_node_of_a_condition_is_read_back() -> None:
    """Among other reasons, and with dots in its name."""
    node = NodeName("gpu-1.example.com")
    other = NodeName("n2")
    for named in ((node,), (node, other)):
        text = f"0/2 nodes are available: 1 {acquiring_on(*named)}, 1 Insufficient cpu (most free: 1 on x)."
        assert wanted_nodes(text) == named
    assert wanted_nodes("0/2 nodes are available: 2 Insufficient cpu.") == ()


def test_a_burst_is_shared_out_among_the_nodes_that_were_named() -> None:
    """Each node takes as many cards as it has, at once; what is left over takes none in vain."""
    nodes = {NodeName(f"n{number}"): 2 for number in (1, 2, 3)}
    model = Model(
        cards={node: [GpuUuid(f"GPU-{node}-{i}") for i in range(count)] for node, count in nodes.items()}
    )
    for number in range(5):
        model.wait(f"p{number}", whole(), *list(nodes)[:2])
    planned = model.round()
    assert [step.node for step in planned.steps if isinstance(step, Reserve)] == ["n1", "n1", "n2", "n2"]


def test_a_node_that_fails_is_not_the_only_choice() -> None:
    """The first node's reservation never names a card. The next node is taken, and the first is the last choice."""
    other = NodeName("n2")
    model = Model(cards={NODE: [GpuUuid("GPU-a")], other: [GpuUuid("GPU-b")]})
    model.wait("a", sharing(30), NODE, other)
    model.round()
    model.schedule()
    model.round()
    planned = model.round(ACQUIRE_S)
    assert [step.node for step in planned.steps if isinstance(step, Reserve)] == [other]
    model.settle()
    assert model.pool == ["GPU-b"]


@pytest.mark.parametrize("ready", [0, 1])
def test_a_cordoned_card_serves_nobody_and_stays_reserved(ready: int) -> None:
    """Neither a waiting pod nor the reserve counts it, no native pod gets it, and it goes back once uncordoned."""
    model = Model(ReleasePolicy(ready=ready))
    model.node(cordoned=frozenset({"GPU-0"}))
    model.wait("a")
    model.settle()
    assert model.pool == ["GPU-0", "GPU-1", "GPU-2"][: 2 + ready]  # the kubelet gave the cordoned one first
    model.use("a", GpuUuid("GPU-1"))
    model.settle()
    assert model.pool == ["GPU-0", "GPU-1", "GPU-2"][: 2 + ready]
    assert model.last is not None
    assert (model.last.phases["cordoned"], model.last.phases["active"]) == (1, 1)
    model.end("a", GpuUuid("GPU-1"))
    model.settle(1000)
    assert "GPU-0" in model.pool
    model.node(cordoned=frozenset())
    model.settle(1000)
    assert len(model.pool) == ready


def test_a_node_whose_other_cards_are_cordoned_has_none_to_acquire() -> None:
    """The placer names no node for a card that would join the pool and take no pod."""
    pool = Pool()
    pool.is_on = True
    pool.put(NODE, PoolPart(frozenset({GpuUuid("GPU-n1-0")}), 2))
    view = node_view(state(NODE, *(gpu(f"GPU-n1-{number}") for number in range(3))))
    assert pool.split(view).acquirable == 2
    pool.put_schedulability(NODE, Schedulability(cordoned=frozenset({"GPU-n1-1"})))
    assert pool.split(view).acquirable == 1
    pool.put_schedulability(NODE, Schedulability(cordoned=frozenset({"GPU-n1-1", "GPU-n1-2"})))
    assert pool.split(view).acquirable == 0
