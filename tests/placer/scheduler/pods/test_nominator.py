"""A nomination holds its room for one pod: against lower pods, after a restart, until its end; without servers."""

from plimsoll.ids import NodeName, PodUid
from plimsoll.quantity import GIB
from tests.placer.kube.objects import MEMORY, SHARE
from tests.placer.kube.preemption_scene import ENDING, cpu, later, on_gpu, preemption_scene, waiting


async def test_a_lower_pod_does_not_get_the_room_that_is_held() -> None:
    """While the victim ends, and after it, pods of lower or equal priority wait; the preemptor gets the room."""
    async with preemption_scene() as made:
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


async def test_a_lower_pod_does_not_get_the_gpu_that_is_held() -> None:
    """The GPU of the victims is held. Other GPUs of the node are not."""
    async with preemption_scene() as made:
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
    async with preemption_scene() as made:
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
    """A preemptor whose room went to a higher pod, and that has no victims left, loses its nomination."""
    async with preemption_scene() as made:
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


async def test_a_preemptor_takes_another_node_that_fits() -> None:
    """A nominated pod does not wait for its victims where another node has room, and the hold ends."""
    async with preemption_scene() as made:
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


async def test_nominations_are_read_back_after_a_restart() -> None:
    """A new leader holds the room of a nomination that an earlier one wrote, on its GPU, and ends no further pod."""
    async with preemption_scene() as made:
        made.scene.node("n1")
        made.scene.report("n1", 24, 24)
        made.scene.show(on_gpu("a", "GPU-n1-0", 0, 20, **ENDING))
        made.scene.show(on_gpu("b", "GPU-n1-1", 5, 20))
        status = {"nominatedNodeName": "n1"}
        made.scene.show(waiting("p", 10, {MEMORY: str(20 * GIB)}, status=status))
        made.preemption.nominated.check_all()
        made.scene.delete("a")
        made.scene.show(waiting("low", 5, {MEMORY: str(5 * GIB)}))
        await later(made)
        assert made.scene.pods["p"].spec.nodeName == "n1"
        assert not made.scene.is_placed("low")
        assert not made.deleted


async def test_a_nomination_without_victims_is_given_up_by_the_next_leader() -> None:
    """A leader that ended before it deleted a victim leaves a nomination; the next one makes its own."""
    async with preemption_scene() as made:
        made.scene.node("n1")
        made.scene.node("n2")
        made.scene.show(cpu("a", "n1", 5))
        made.scene.show(cpu("b", "n2", 0))
        made.scene.show(waiting("p", 10, status={"nominatedNodeName": "n1"}))
        made.preemption.nominated.check_all()
        await later(made)
        assert made.deleted == ["b"]
        assert made.scene.pods["p"].status.nominatedNodeName == "n2"


async def test_room_for_pods_of_other_schedulers_is_held_too() -> None:
    """A pod that another scheduler nominated has its room held against lower pods, until it is gone."""
    async with preemption_scene() as made:
        made.scene.node("n1")
        other = waiting("other", 20, scheduler="default-scheduler", status={"nominatedNodeName": "n1"})
        made.scene.show(other)
        made.scene.show(waiting("low", 10))
        await later(made)
        assert not made.scene.is_placed("low")
        made.scene.delete("other")
        await later(made)
        assert made.scene.is_placed("low")


async def test_a_lower_nomination_ends_where_a_higher_pod_preempts() -> None:
    """A pod that waits for victims on a node is tried elsewhere once a higher pod has victims on the same node."""
    async with preemption_scene() as made:
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
    async with preemption_scene() as made:
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
    async with preemption_scene() as made:
        made.scene.node("n1")
        made.scene.show(cpu("a", "n1", 0))
        made.scene.show(waiting("p", 10))
        await made.settle()
        made.scene.delete("a")
        pod = made.scene.pods["p"]
        made.preemption.nominated.placed(PodUid("p"), NodeName("n1"))
        made.preemption.nominated.not_bound(pod)
        made.scene.show(waiting("low", 5))
        await later(made)
        assert made.scene.is_placed("p")
        assert not made.scene.is_placed("low")


async def test_a_nomination_for_a_node_that_leaves_ends() -> None:
    """A preemptor whose nominated node is deleted preempts on another node."""
    async with preemption_scene() as made:
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


async def test_a_room_that_frees_during_an_explanation_is_found() -> None:
    """A refusal of a nominated pod is void once its room is free, though that room is held against all other pods."""
    async with preemption_scene() as made:
        made.scene.node("n1")
        wanted = made.want(waiting("p", 10, status={"nominatedNodeName": "n1"}))
        assert await made.parts.core.scheduling.explain(wanted) is None
        other = made.want(waiting("other", 10))
        assert await made.parts.core.scheduling.explain(other) is not None


async def test_a_refusal_is_not_shared_with_pods_of_higher_priority() -> None:
    """Room that is held keeps a low pod waiting. An equal pod of higher priority gets that room."""
    async with preemption_scene() as made:
        made.scene.node("n1")
        status = {"nominatedNodeName": "n1"}
        made.scene.show(waiting("other", 10, {"cpu": "4"}, scheduler="default-scheduler", status=status))
        made.scene.show(waiting("low", 5))
        await later(made)
        assert not made.scene.is_placed("low")
        made.scene.show(waiting("high", 20))
        await later(made)
        assert made.scene.is_placed("high")
