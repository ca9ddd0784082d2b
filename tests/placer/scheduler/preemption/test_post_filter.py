"""The victims of a preemption, without servers: no pod ends in vain, and no preemptor waits in vain."""

import msgspec
import pytest

from placer.core.booking import Booking
from placer.scheduler.pods.needs import needs_of
from placer.scheduler.pods.pod_info import PodInfo
from placer.scheduler.preemption import executor, post_filter
from placer.scheduler.preemption.victim_search import NoVictims, VictimSearch
from placer.scheduler.preemption.victims import Victims
from plimsoll.ids import NodeName, PodUid
from plimsoll.kube.reflector import Synced
from plimsoll.kube.transport import ConflictError, RefusedError
from plimsoll.quantity import GIB
from tests.placer.core.worlds import task
from tests.placer.kube.objects import MEMORY, Object
from tests.placer.kube.preemption_scene import TAINT, cpu, later, on_gpu, pod, preemption_scene, waiting
from tests.placer.scheduler.plugins.topology.rules import REQUIRED


@pytest.mark.parametrize("name", ["exclusion", "anti-affinity"])
async def test_a_pod_whose_label_keeps_a_gpu_is_a_victim_as_for_memory(name: str) -> None:
    """A pod of higher priority ends the pod whose label keeps it out, and its own labels are held meanwhile."""
    label = {f"plimsoll.dev/{name}": "x"}
    async with preemption_scene() as made:
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


async def test_pods_of_one_kind_have_victims_of_their_own() -> None:
    """Each of several equal preemptors gets a node; none waits for another's victims, and no further pod ends."""
    async with preemption_scene() as made:
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


async def test_no_further_pod_ends_once_the_preemptor_is_deleted() -> None:
    """A preemptor that is deleted while its victims are being deleted leaves the other victims alone."""
    async with preemption_scene() as made:

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
    monkeypatch.setattr(executor, "REFUSED_PAUSE_S", 0.0)
    async with preemption_scene() as made:

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
    async with preemption_scene() as made:

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
    async with preemption_scene() as made:
        for index in range(20):
            made.scene.node(f"n{index}")
            made.scene.show(cpu(f"a{index}", f"n{index}", 0, "4"))
        tried: list[str] = []
        on_node = VictimSearch.on_node

        async def counted(search: VictimSearch, wanted: PodInfo, node: NodeName) -> Victims | tuple[str, ...]:
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


async def test_the_report_of_freed_gpu_memory_is_awaited() -> None:
    """After its victim is gone, a preemptor waits for the node's report, and no second victim ends meanwhile."""
    async with preemption_scene() as made:
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
        refused = made.scene.queued("p").info
        assert refused is not None
        explained = await made.preemption.refuse(refused)
        assert explained is not None
        assert post_filter.TERMINATING in explained.text
        assert made.deleted == ["a"]
        made.scene.report("n1", 24, 24)
        await later(made)
        assert made.scene.is_placed("p")
        assert made.deleted == ["a"]


async def test_an_unschedulable_pod_preempts_once_a_change_makes_that_possible() -> None:
    """A pod that no victims helped is tried again when a full node's taint goes, and preempts there."""
    async with preemption_scene() as made:
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


async def test_a_pod_preempts_once_the_budgets_are_read() -> None:
    """Before the budgets were read no pod ends; the refusal says so, and is tried again once they were."""
    async with preemption_scene() as made:
        made.parts.core.budgets.are_read = False
        made.scene.node("n1")
        made.scene.show(cpu("a", "n1", 0))
        made.scene.show(waiting("p", 10))
        await later(made)
        assert "the disruption budgets have not been read yet" in made.scene.refusal("p")
        assert not made.deleted
        made.parts.watches.on_budget(Synced())
        await later(made)
        assert made.deleted == ["a"]


async def test_many_preemptors_of_one_kind_try_each_node_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A finding about a node holds for all pods of a kind until the node changes."""
    tried: list[str] = []
    on_node = VictimSearch.on_node

    async def counted(search: VictimSearch, wanted: PodInfo, node: NodeName) -> Victims | tuple[str, ...]:
        tried.append(node)
        return await on_node(search, wanted, node)

    monkeypatch.setattr(VictimSearch, "on_node", counted)
    async with preemption_scene() as made:
        for index in range(60):
            made.scene.node(f"n{index}")
            made.scene.show(cpu(f"a{index}", f"n{index}", 0))
        for index in range(30):
            made.scene.show(waiting(f"p{index}", 10))
        await later(made)
        assert len(made.deleted) == 30
        assert len(tried) < 60 + 10 * 30


async def test_a_victim_that_never_ends_is_awaited_for_a_time_only() -> None:
    """A finalizer keeps the victim. After ten minutes another pod ends instead, although its priority is higher."""
    async with preemption_scene() as made:
        for name, priority in (("n1", 0), ("n2", 1)):
            made.scene.node(name)
            made.scene.show(cpu(f"on-{name}", name, priority))
        made.scene.show(waiting("p", 10))
        await later(made)
        for passed_s in (500, 200):
            assert made.deleted == ["on-n1"]
            made.scene.late_s += passed_s
            made.parts.controllers.stuck.look()
            await later(made)
        assert made.deleted == ["on-n1", "on-n2"]
        assert made.nominated[-1] == ("p", "n2")
        made.scene.delete("on-n2")
        await later(made)
        assert made.scene.is_placed("p")


async def test_of_equal_preemptors_the_first_needs_no_room_of_the_second() -> None:
    """A nominated pod is placed once its own victims are gone, while those of an equal, later one still end."""
    async with preemption_scene() as made:
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
    async with preemption_scene() as made:
        made.scene.node("n1")
        low = cpu("a", "n1", 0)
        booking = Booking(PodUid("a"), NodeName("n1"), ())
        made.scene.ledger.book(booking)
        made.scene.cache.assume(booking, needs_of(low), low)
        made.scene.show(waiting("p", 10))
        await made.settle()
        assert "1 Preemption victims are still being bound" in made.scene.refusal("p")
        assert not made.deleted
        made.scene.show(low)
        await later(made)
        assert made.deleted == ["a"]


async def test_what_was_found_for_others_does_not_bind_a_nominated_pod() -> None:
    """A node whose room is held keeps equal pods out. The pod for which it is held may have victims there."""
    async with preemption_scene() as made:
        made.scene.node("n1")
        made.scene.show(cpu("a", "n1", 0))
        nominated = made.want(waiting("p", 10, status={"nominatedNodeName": "n1"}))
        explained = await made.refuse(waiting("q", 10))
        assert explained is not None
        assert "1 Insufficient cpu" in explained.text
        assert await made.preemption.refuse(nominated) is not None
        assert made.nomination("p") == ("n1", {"a"})


async def test_victims_are_sought_again_once_their_rule_alone_keeps_a_pod_out() -> None:
    """Two pods of a zone keep a pod out. Once the one of higher priority is gone, the end of the other one helps."""
    async with preemption_scene() as made:
        kept = {REQUIRED: [{"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "high"}}}]}
        rule: Object = {"affinity": {"podAntiAffinity": kept}}
        for name, priority in (("n1", 0), ("n2", 20)):
            made.scene.node(name, {"zone": "a"})
            made.scene.show(pod(f"on-{name}", name, priority, **rule))
        wanted = made.want(pod("p", None, 10, {"cpu": "1"}, labels={"app": "high"}))
        assert isinstance(await made.preemption.search.search(wanted), NoVictims)
        made.scene.delete("on-n2")
        found = await made.preemption.search.search(wanted)
        assert isinstance(found, Victims)
        assert [one.uid for one in found.pods] == ["on-n1"]
