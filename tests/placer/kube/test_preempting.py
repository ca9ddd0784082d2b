"""A preemption from its nomination to the bind, without servers: room stays held, and no pod ends in vain."""

import msgspec
import pytest

from placer.core.booking import Booking
from placer.core.fit import needs_of
from placer.kube import preempting, preemption_orders
from placer.kube.victim_search import NoVictims, VictimSearch
from placer.kube.victims import Victims
from placer.kube.wanted import Wanted
from plimsoll.ids import NodeName, PodUid
from plimsoll.kube.models import Pod
from plimsoll.kube.reflector import Synced
from plimsoll.kube.transport import ConflictError, RefusedError
from tests.placer.core.worlds import task
from tests.placer.kube.boards import Board, board, on_gpu, pod
from tests.placer.kube.domains.rules import REQUIRED
from tests.placer.kube.scene import MEMORY, SHARE, Object
from tests.placer.kube.test_preemption import ENDING, GIB, TAINT, cpu

CPU = {"cpu": "8"}


def waiting(name: str, priority: int, limits: dict[str, str] | None = None, **more: object) -> Pod:
    """A pod without a node; it wants all CPU of one unless it says otherwise."""
    return pod(name, None, priority, CPU if limits is None else limits, **more)  # type: ignore[arg-type]


async def later(made: Board) -> None:
    """Do all work, that of woken pods included."""
    await made.settle()
    made.scene.pass_backoff()
    await made.settle()


async def test_a_lower_pod_does_not_get_the_room_that_is_held() -> None:
    """While the victim ends, and after it, pods of lower or equal priority wait; the preemptor gets the room."""
    async with board() as made:
        made.scene.node("n1")
        made.scene.show(cpu("a", "n1", 0))
        made.scene.show(waiting("p", 10))
        await made.settle()
        assert made.deleted == ["a"]
        assert made.nominated == [("p", "n1")]
        assert made.scene.pods["p"].status.nominatedNodeName == "n1"
        for name, priority in (("low", 5), ("equal", 10)):
            made.scene.show(waiting(name, priority))
        await later(made)
        made.scene.delete("a")
        made.scene.show(waiting("late", 5))
        await later(made)
        assert made.scene.pods["p"].spec.nodeName == "n1"
        assert not any(made.scene.is_placed(name) for name in ("low", "equal", "late"))
        assert made.deleted == ["a"]
        assert made.nomination("p") is None


@pytest.mark.parametrize("name", ["exclusion", "anti-affinity"])
async def test_a_pod_whose_label_keeps_a_gpu_is_a_victim_as_for_memory(name: str) -> None:
    """A pod of higher priority ends the pod whose label keeps it out, and its own labels are held meanwhile."""
    label = {f"plimsoll.dev/{name}": "x"}
    async with board() as made:
        made.scene.node("n1")
        made.scene.report("n1", 24)
        made.scene.show(waiting("keeper", 0, {MEMORY: "2Gi"}, annotations=label))
        await made.settle()
        assert made.scene.is_placed("keeper")
        wants = label if name == "anti-affinity" else {}
        made.scene.show(waiting("p", 10, {MEMORY: "2Gi"}, annotations=wants))
        await made.settle()
        assert (made.deleted, made.nominated) == (["keeper"], [("p", "n1")])
        made.scene.delete("keeper")
        made.scene.show(waiting("late", 5, {MEMORY: "2Gi"}, annotations=label))
        await later(made)
        assert made.scene.is_placed("p")
        assert not made.scene.is_placed("late")


async def test_a_lower_pod_does_not_get_the_gpu_that_is_held() -> None:
    """The GPU of the victims is held. Other GPUs of the node are not."""
    async with board() as made:
        made.scene.node("n1")
        made.scene.report("n1", 24, 24)
        made.scene.show(on_gpu("a", "GPU-n1-0", 0, 20))
        made.scene.show(on_gpu("b", "GPU-n1-1", 5, 20))
        made.scene.show(waiting("p", 10, {MEMORY: str(20 * GIB)}))
        await made.settle()
        assert made.deleted == ["a"]
        made.scene.show(waiting("low", 5, {MEMORY: str(10 * GIB)}))
        made.scene.show(waiting("small", 5, {MEMORY: str(4 * GIB)}))
        made.scene.delete("a")
        made.scene.show(waiting("late", 5, {MEMORY: str(8 * GIB)}))
        await later(made)
        assert made.scene.pods["p"].spec.nodeName == "n1"
        assert made.scene.is_placed("small")
        assert not made.scene.is_placed("low")
        assert not made.scene.is_placed("late")
        assert made.nominated == [("p", "n1")]


async def test_a_higher_pod_takes_the_room_and_the_preemptor_is_nominated_anew() -> None:
    """A pod of higher priority may have the room that is held. The preemptor then has victims elsewhere."""
    async with board() as made:
        made.scene.node("n1")
        made.scene.node("n2")
        made.scene.show(cpu("a", "n1", 0))
        made.scene.show(cpu("b", "n2", 3))
        made.scene.show(waiting("p", 10))
        await made.settle()
        assert made.deleted == ["a"]
        made.scene.show(waiting("high", 20))
        made.scene.delete("a")
        await later(made)
        assert made.scene.pods["high"].spec.nodeName == "n1"
        assert made.deleted == ["a", "b"]
        assert made.nomination("p") == ("n2", {"b"})
        made.scene.delete("b")
        await later(made)
        assert made.scene.pods["p"].spec.nodeName == "n2"


async def test_a_nomination_that_nothing_can_fulfil_is_taken_back() -> None:
    """A preemptor whose room went to a higher pod, and for which no victims are left, is nominated no more."""
    async with board() as made:
        made.scene.node("n1")
        made.scene.show(cpu("a", "n1", 0))
        made.scene.show(waiting("p", 10))
        await made.settle()
        made.scene.show(waiting("high", 20))
        made.scene.delete("a")
        await later(made)
        assert made.scene.pods["high"].spec.nodeName == "n1"
        assert made.nominated == [("p", "n1"), ("p", None)]
        assert made.nomination("p") is None
        assert "preemption" not in made.scene.refusal("p")  # no pod of lower priority has a node


async def test_pods_of_one_kind_have_victims_of_their_own() -> None:
    """Each of several equal preemptors gets a node; none waits for another's victims, and no further pod ends."""
    async with board() as made:
        for index in range(4):
            made.scene.node(f"n{index}")
            made.scene.show(cpu(f"a{index}", f"n{index}", 0))
        for index in range(3):
            made.scene.show(waiting(f"p{index}", 10))
        await later(made)
        assert len(made.deleted) == 3
        for name in tuple(made.deleted):
            made.scene.delete(name)
            await later(made)
        assert all(made.scene.is_placed(f"p{index}") for index in range(3))
        assert len(made.deleted) == 3


async def test_a_preemptor_takes_another_node_that_fits() -> None:
    """A nominated pod does not wait for its victims where another node has room, and the hold ends."""
    async with board() as made:
        made.scene.node("n1")
        made.scene.show(cpu("a", "n1", 0))
        made.scene.show(waiting("p", 10))
        await made.settle()
        made.scene.node("n2")
        await later(made)
        assert made.scene.pods["p"].spec.nodeName == "n2"
        made.scene.delete("a")
        made.scene.show(waiting("low", 1))
        await later(made)
        assert made.scene.pods["low"].spec.nodeName == "n1"


async def test_no_further_pod_ends_once_the_preemptor_is_deleted() -> None:
    """A preemptor that is deleted while its victims are being deleted leaves the other victims alone."""
    async with board() as made:

        async def drop_preemptor(_: str) -> None:
            made.scene.delete("p")

        made.scene.node("n1")
        for name in "abcd":
            made.scene.show(cpu(name, "n1", 0, "2"))
        made.faults.append(drop_preemptor)
        made.scene.show(waiting("p", 10))
        await later(made)
        assert len(made.deleted) == 1
        assert made.nomination("p") is None


@pytest.mark.parametrize("error", [RefusedError("denied", 403, "Forbidden")])
async def test_a_pod_whose_deletion_is_refused_is_spared(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a refused deletion the pod says so, the nomination ends, and other victims are found."""
    monkeypatch.setattr(preemption_orders, "REFUSED_PAUSE_S", 0.0)
    async with board() as made:

        async def refuse(name: str) -> None:
            if name == "a":
                raise error

        made.scene.node("n1")
        made.scene.node("n2")
        made.scene.show(cpu("a", "n1", 0))
        made.scene.show(cpu("b", "n2", 5))
        made.faults.append(refuse)
        made.scene.show(waiting("p", 10))
        await later(made)
        assert made.deleted == ["b"]
        assert made.nomination("p") == ("n2", {"b"})
        assert made.nominated == [("p", "n1"), ("p", "n2")] or made.nominated[-1] == ("p", "n2")


@pytest.mark.parametrize("kind", ["gone", "replaced"])
async def test_a_victim_that_is_gone_is_no_failure(kind: str) -> None:
    """A victim that vanished, or another pod of its name (409), ends nothing and stops nothing."""
    async with board() as made:

        async def vanish(name: str) -> None:
            if name == "a" and kind == "gone":
                made.scene.delete("a")
            elif name == "a" and "a" in made.scene.pods:
                meta = msgspec.structs.replace(made.scene.pods["a"].metadata, uid="another")
                made.scene.pods["a"] = msgspec.structs.replace(made.scene.pods["a"], metadata=meta)
                raise ConflictError("uid in precondition", 409)

        made.scene.node("n1")
        made.scene.show(cpu("a", "n1", 0, "4"))
        made.scene.show(cpu("b", "n1", 0, "4"))
        made.faults.append(vanish)
        made.scene.show(waiting("p", 10))
        await made.settle()
        assert made.deleted == ["b"]
        assert made.nomination("p") == ("n1", {"a", "b"})


async def test_a_thousand_hopeless_pods_delete_nothing_and_starve_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Pods of high priority that no victims help share their refusal: nothing ends, and others are placed."""
    async with board() as made:
        for index in range(20):
            made.scene.node(f"n{index}")
            made.scene.show(cpu(f"a{index}", f"n{index}", 0, "4"))
        tried: list[str] = []
        on_node = VictimSearch.on_node

        async def counted(search: VictimSearch, wanted: Wanted, node: NodeName) -> Victims | tuple[str, ...]:
            tried.append(node)
            return await on_node(search, wanted, node)

        monkeypatch.setattr(VictimSearch, "on_node", counted)
        for index in range(1000):
            made.scene.show(waiting(f"p{index}", 10, {"cpu": "9"}))
        made.scene.show(waiting("small", 1, {"cpu": "2"}))
        await later(made)
        assert made.scene.is_placed("small")
        assert not made.deleted
        assert not made.nominated
        assert len(tried) <= 200
        assert "20 Preemption is not helpful for scheduling" in made.scene.refusal("p999")


async def test_nominations_are_read_back_after_a_restart() -> None:
    """A new leader holds the room of a nomination that an earlier one wrote, on its GPU, and ends no further pod."""
    async with board() as made:
        made.scene.node("n1")
        made.scene.report("n1", 24, 24)
        made.scene.show(on_gpu("a", "GPU-n1-0", 0, 20, **ENDING))
        made.scene.show(on_gpu("b", "GPU-n1-1", 5, 20))
        status = {"nominatedNodeName": "n1"}
        made.scene.show(waiting("p", 10, {MEMORY: str(20 * GIB)}, status=status))
        made.preempting.check_all()
        made.scene.delete("a")
        made.scene.show(waiting("low", 5, {MEMORY: str(5 * GIB)}))
        await later(made)
        assert made.scene.pods["p"].spec.nodeName == "n1"
        assert not made.scene.is_placed("low")
        assert not made.deleted


async def test_a_nomination_without_victims_is_given_up_by_the_next_leader() -> None:
    """A leader that ended before it deleted a victim leaves a nomination; the next one makes its own."""
    async with board() as made:
        made.scene.node("n1")
        made.scene.node("n2")
        made.scene.show(cpu("a", "n1", 5))
        made.scene.show(cpu("b", "n2", 0))
        made.scene.show(waiting("p", 10, status={"nominatedNodeName": "n1"}))
        made.preempting.check_all()
        await later(made)
        assert made.deleted == ["b"]
        assert made.scene.pods["p"].status.nominatedNodeName == "n2"


async def test_room_for_pods_of_other_schedulers_is_held_too() -> None:
    """A pod that another scheduler nominated has its room held against lower pods, until it is gone."""
    async with board() as made:
        made.scene.node("n1")
        other = waiting("other", 20, scheduler="default-scheduler", status={"nominatedNodeName": "n1"})
        made.scene.show(other)
        made.scene.show(waiting("low", 10))
        await later(made)
        assert not made.scene.is_placed("low")
        made.scene.delete("other")
        await later(made)
        assert made.scene.is_placed("low")


async def test_the_report_of_freed_gpu_memory_is_awaited() -> None:
    """After its victim is gone, a preemptor waits for the node's report, and no second victim ends meanwhile."""
    async with board() as made:
        made.scene.node("n1")
        made.scene.report("n1", 24, 24, tasks=(task("a", "GPU-n1-0", 20 * GIB),))
        made.scene.show(on_gpu("a", "GPU-n1-0", 0, 20))
        made.scene.show(on_gpu("b", "GPU-n1-1", 5, 20))
        made.scene.show(waiting("p", 10, {MEMORY: str(20 * GIB)}))
        await made.settle()
        assert made.deleted == ["a"]
        made.scene.delete("a")
        await later(made)
        assert not made.scene.is_placed("p")
        refused = made.front_end._waiting[PodUid("p")].wanted
        assert refused is not None
        explained = await made.preempting.refuse(refused)
        assert explained is not None
        assert preempting.TERMINATING in explained.text
        assert made.deleted == ["a"]
        made.scene.report("n1", 24, 24)
        await later(made)
        assert made.scene.is_placed("p")
        assert made.deleted == ["a"]


async def test_a_parked_pod_preempts_once_a_change_makes_that_possible() -> None:
    """A pod that no victims helped is tried again when a full node's taint goes, and preempts there."""
    async with board() as made:
        made.scene.node("n1", taints=[TAINT])
        made.scene.node("n2")
        made.scene.show(cpu("a", "n1", 0))
        made.scene.show(cpu("b", "n2", 10))
        made.scene.show(waiting("p", 10))
        await later(made)
        assert not made.deleted
        made.scene.node("n1")
        await later(made)
        assert made.deleted == ["a"]


async def test_a_lower_nomination_ends_where_a_higher_pod_preempts() -> None:
    """A pod that waits for victims on a node is tried elsewhere once a higher pod has victims on the same node."""
    async with board() as made:
        made.scene.node("n1")
        made.scene.show(cpu("a", "n1", 0))
        made.scene.show(waiting("p", 10))
        await made.settle()
        made.scene.show(waiting("high", 20))
        await later(made)
        assert made.nomination("high") == ("n1", {"a"})
        assert made.nomination("p") is None
        made.scene.delete("a")
        await later(made)
        assert made.scene.pods["high"].spec.nodeName == "n1"
        assert made.deleted == ["a"]


async def test_shares_of_a_gpu_are_held_for_two_preemptors() -> None:
    """Two preemptors of one GPU have victims of their own, and both are placed."""
    async with board() as made:
        made.scene.node("n1")
        made.scene.report("n1", 24)
        made.scene.show(on_gpu("a", "GPU-n1-0", 0, share=50))
        made.scene.show(on_gpu("b", "GPU-n1-0", 1, share=50))
        for name in ("p", "q"):
            made.scene.show(waiting(name, 10, {SHARE: "50"}))
        await later(made)
        assert sorted(made.deleted) == ["a", "b"]
        for name in ("a", "b"):
            made.scene.delete(name)
            await later(made)
        assert made.scene.is_placed("p")
        assert made.scene.is_placed("q")


async def test_a_bind_that_fails_leaves_the_room_with_its_pod() -> None:
    """A nominated pod whose bind is refused is nominated again, so that no lower pod gets the room meanwhile."""
    async with board() as made:
        made.scene.node("n1")
        made.scene.show(cpu("a", "n1", 0))
        made.scene.show(waiting("p", 10))
        await made.settle()
        made.scene.delete("a")
        pod = made.scene.pods["p"]
        made.preempting.placed(PodUid("p"), NodeName("n1"))
        made.preempting.not_bound(pod)
        made.scene.show(waiting("low", 5))
        await later(made)
        assert made.scene.is_placed("p")
        assert not made.scene.is_placed("low")


async def test_a_pod_preempts_once_the_budgets_are_read() -> None:
    """Before the budgets were read no pod ends; the refusal says so, and is tried again once they were."""
    async with board() as made:
        made.front_end._budgets.are_read = False
        made.scene.node("n1")
        made.scene.show(cpu("a", "n1", 0))
        made.scene.show(waiting("p", 10))
        await later(made)
        assert "the disruption budgets have not been read yet" in made.scene.refusal("p")
        assert not made.deleted
        made.front_end._watches.on_budget(Synced())
        await later(made)
        assert made.deleted == ["a"]


async def test_a_nomination_for_a_node_that_leaves_ends() -> None:
    """A preemptor whose nominated node is deleted preempts on another node."""
    async with board() as made:
        for name, priority in (("n1", 0), ("n2", 5)):
            made.scene.node(name)
            made.scene.show(cpu(f"on-{name}", name, priority))
        made.scene.show(waiting("p", 10))
        await made.settle()
        assert made.deleted == ["on-n1"]
        made.scene.remove_node("n1")
        await later(made)
        assert made.deleted == ["on-n1", "on-n2"]
        assert made.nomination("p") == ("n2", {"on-n2"})


async def test_many_preemptors_of_one_kind_try_each_node_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A finding about a node holds for all pods of a kind until the node changes."""
    tried: list[str] = []
    on_node = VictimSearch.on_node

    async def counted(search: VictimSearch, wanted: Wanted, node: NodeName) -> Victims | tuple[str, ...]:
        tried.append(node)
        return await on_node(search, wanted, node)

    monkeypatch.setattr(VictimSearch, "on_node", counted)
    async with board() as made:
        for index in range(60):
            made.scene.node(f"n{index}")
            made.scene.show(cpu(f"a{index}", f"n{index}", 0))
        for index in range(30):
            made.scene.show(waiting(f"p{index}", 10))
        await later(made)
        assert len(made.deleted) == 30
        assert len(tried) < 60 + 10 * 30


async def test_a_room_that_frees_during_an_explanation_is_found() -> None:
    """A refusal of a nominated pod is void once its room is free, though that room is held against all other pods."""
    async with board() as made:
        made.scene.node("n1")
        wanted = made.want(waiting("p", 10, status={"nominatedNodeName": "n1"}))
        assert await made.front_end._choice.explain(wanted) is None
        other = made.want(waiting("other", 10))
        assert await made.front_end._choice.explain(other) is not None


async def test_a_refusal_is_not_shared_with_pods_of_higher_priority() -> None:
    """Room that is held keeps a low pod waiting. An equal pod of higher priority gets that room."""
    async with board() as made:
        made.scene.node("n1")
        status = {"nominatedNodeName": "n1"}
        made.scene.show(waiting("other", 10, {"cpu": "4"}, scheduler="default-scheduler", status=status))
        made.scene.show(waiting("low", 5))
        await later(made)
        assert not made.scene.is_placed("low")
        made.scene.show(waiting("high", 20))
        await later(made)
        assert made.scene.is_placed("high")


async def test_of_equal_preemptors_the_first_needs_no_room_of_the_second() -> None:
    """A nominated pod is placed once its own victims are gone, while those of an equal, later one still end."""
    async with board() as made:
        made.scene.node("n1")
        for name in "ab":
            made.scene.show(cpu(name, "n1", 0, "4"))
        for name in "pq":
            made.scene.show(waiting(name, 10, {"cpu": "4"}))
            await made.settle()
        assert len(made.deleted) == 2
        made.scene.delete(made.deleted[0])
        await later(made)
        assert made.scene.is_placed("p")
        assert not made.scene.is_placed("q")
        assert made.nominated == [("p", "n1"), ("q", "n1")]


async def test_a_pod_whose_bind_is_under_way_is_left_alone_and_preempted_later() -> None:
    """No pod ends during its bind. The preemptor is tried again by itself, and then finds the bound pod."""
    async with board() as made:
        made.scene.node("n1")
        low = cpu("a", "n1", 0)
        booking = Booking(PodUid("a"), NodeName("n1"), ())
        made.scene.ledger.book(booking)
        made.scene.cluster.assume(booking, needs_of(low), low)
        made.scene.show(waiting("p", 10))
        await made.settle()
        assert "1 Preemption victims are still being bound" in made.scene.refusal("p")
        assert not made.deleted
        made.scene.show(low)
        await later(made)
        assert made.deleted == ["a"]


async def test_what_was_found_for_others_does_not_bind_a_nominated_pod() -> None:
    """A node whose room is held keeps equal pods out. The pod for which it is held may have victims there."""
    async with board() as made:
        made.scene.node("n1")
        made.scene.show(cpu("a", "n1", 0))
        nominated = made.want(waiting("p", 10, status={"nominatedNodeName": "n1"}))
        explained = await made.refuse(waiting("q", 10))
        assert explained is not None
        assert "1 Insufficient cpu" in explained.text
        assert await made.preempting.refuse(nominated) is not None
        assert made.nomination("p") == ("n1", {"a"})


async def test_victims_are_sought_again_once_their_rule_alone_keeps_a_pod_out() -> None:
    """Two pods of a zone keep a pod out. When one on another node is gone, the end of the other one helps."""
    async with board() as made:
        kept = {REQUIRED: [{"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "high"}}}]}
        rule: Object = {"affinity": {"podAntiAffinity": kept}}
        for name, priority in (("n1", 0), ("n2", 20)):
            made.scene.node(name, {"zone": "a"})
            made.scene.show(pod(f"on-{name}", name, priority, **rule))
        wanted = made.want(pod("p", None, 10, {"cpu": "1"}, labels={"app": "high"}))
        assert isinstance(await made.preempting.search.search(wanted), NoVictims)
        made.scene.delete("on-n2")
        found = await made.preempting.search.search(wanted)
        assert isinstance(found, Victims)
        assert [one.uid for one in found.pods] == ["on-n1"]
