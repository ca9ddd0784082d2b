"""Room that is held for nominated pods, in the answers to kube-scheduler, without servers."""

import pytest

from placer.core.reasons import Reason
from placer.extender.extender import Extender, Leadership
from placer.extender.wire import NotBoundError
from plimsoll.ids import NodeName, PodUid
from plimsoll.kube.models import Pod
from tests.placer.kube.objects import MEMORY
from tests.placer.kube.preemption_scene import ENDING, PreemptionScene, on_gpu, pod, preemption_scene

N1 = NodeName("n1")
NO_MEMORY = {"n1": Reason.GPU_MEMORY.value}


def gib(amount: int, cpu: str = "0") -> dict[str, str]:
    """Limits of a pod that wants this much GPU memory."""
    return {MEMORY: f"{amount}Gi", "cpu": cpu}


def outside(name: str, priority: int, limits: dict[str, str], node: str | None = None) -> Pod:
    """A pod of kube-scheduler without a node, nominated for one if that is given."""
    status = {"nominatedNodeName": node}
    return pod(name, None, priority, limits, scheduler="default-scheduler", status=status)


def extender_of(made: PreemptionScene) -> Extender:
    """The extender of a front end that leads."""
    extender = made.parts.extender
    extender.leadership = Leadership(made.parts.context.leads, None, lambda: 0.0)
    return extender


def try_bind(made: PreemptionScene, wanted: Pod) -> str:
    """Decide a bind on `n1`; returns the refusal, or nothing."""
    try:
        made.parts.extender.binds._decide(wanted, N1)
    except NotBoundError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(("priority", "is_kept_out"), [(5, True), (10, True), (20, False)])
async def test_the_gpus_of_a_nominated_pod_of_the_placer_are_held(priority: int, is_kept_out: bool) -> None:  # noqa: FBT001 - a parameter
    """As in the placer's own decisions, pods of lower or equal priority cannot have them, at filter and at bind."""
    async with preemption_scene() as made:
        made.scene.node("n1")
        made.scene.report("n1", 24)
        made.scene.show(on_gpu("a", "GPU-n1-0", 0, 20))
        made.scene.show(pod("p", None, 10, gib(20)))
        await made.settle()
        assert made.nomination("p") == ("n1", {"a"})
        other = outside("other", priority, gib(4))
        made.scene.show(other)
        extender = extender_of(made)
        for _ in range(2):  # the second answer is that of a kind which was asked for before
            assert await extender.filter(other, [N1]) == (NO_MEMORY if is_kept_out else {})
            # A pod of this kind and of the highest priority has another answer.
            assert await extender.filter(outside("top", 30, gib(4)), [N1]) == {}
        scores = await extender.prioritize(other, [N1])
        assert (scores[N1] == 0) is is_kept_out
        refused = try_bind(made, other)
        assert ("no longer fits on n1: Insufficient plimsoll.dev/gpu-memory" in refused) is is_kept_out
        assert bool(refused) is is_kept_out


async def test_the_resources_of_a_nominated_pod_of_the_placer_are_held() -> None:
    """kube-scheduler does not know that the placer has nominated a pod, so filter says what the node lacks."""
    async with preemption_scene() as made:
        made.scene.node("n1")
        made.scene.report("n1", 24)
        made.scene.show(pod("a", "n1", 0, {"cpu": "8"}))
        made.scene.show(pod("p", None, 10, {"cpu": "8"}))
        await made.settle()
        made.scene.delete("a")
        other = outside("other", 5, gib(4, "2"))
        assert await extender_of(made).filter(other, [N1]) == {"n1": "Insufficient cpu"}
        assert "no longer fits on n1: Insufficient cpu" in try_bind(made, other)


async def test_no_pod_is_evicted_for_room_that_is_held() -> None:
    """Victims of kube-scheduler do not help where their room is held for another pod."""
    async with preemption_scene() as made:
        made.scene.node("n1")
        made.scene.report("n1", 24)
        made.scene.show(on_gpu("a", "GPU-n1-0", 0, 12))
        made.scene.show(on_gpu("b", "GPU-n1-0", 1, 12))
        made.scene.show(pod("p", None, 10, gib(12)))
        await made.settle()
        assert made.deleted == ["a"]
        victims = {N1: frozenset({PodUid("a")})}
        assert await extender_of(made).preempt(outside("other", 10, gib(12)), victims) == set()
        assert await extender_of(made).preempt(outside("top", 20, gib(12)), victims) == {N1}


@pytest.mark.parametrize("order", ["nominated first", "victim first", "at once"])
async def test_the_gpus_for_a_nominated_pod_of_kube_scheduler_are_held(order: str) -> None:
    """Once its victims end, no pod of lower priority gets their GPU; kube-scheduler's pod does, and the hold ends."""
    async with preemption_scene() as made:
        made.scene.node("n1")
        made.scene.report("n1", 24, 24)
        victim = on_gpu("a", "GPU-n1-0", 0, 12)
        made.scene.show(victim)
        made.scene.show(on_gpu("b", "GPU-n1-1", 30, 20))
        low, late = pod("low", None, 5, gib(8)), outside("late", 5, gib(8))
        extender = extender_of(made)
        made.scene.show(outside("p", 10, gib(20)))
        await made.settle()
        assert await extender.filter(late, [N1]) == {}
        nominated = outside("p", 10, gib(20), "n1")
        ending = on_gpu("a", "GPU-n1-0", 0, 12, **ENDING)
        for one in (nominated, ending) if order == "nominated first" else (ending, nominated):
            made.scene.show(one)
            if order != "at once":
                await made.settle()
        if order != "at once":  # beside the victim there is room, which the preemptor needs later
            assert await extender.filter(late, [N1]) == NO_MEMORY
            made.scene.show(low)
            await made.settle()
        made.scene.delete("a")
        made.scene.show(low)
        made.scene.pass_backoff()
        await made.settle()
        assert not made.scene.is_placed("low")
        assert await extender.filter(late, [N1]) == NO_MEMORY
        assert await extender.filter(nominated, [N1]) == {}
        assert try_bind(made, nominated) == ""
        assert made.scene.ledger.booking(PodUid("p")) is not None
        assert made.nomination("p") is None
        assert await extender.filter(outside("small", 5, gib(4)), [N1]) == {}


async def test_a_nomination_that_is_taken_back_frees_its_gpus() -> None:
    """kube-scheduler clears `nominatedNodeName`; a pod of lower priority then gets the GPU."""
    async with preemption_scene() as made:
        made.scene.node("n1")
        made.scene.report("n1", 24)
        made.scene.show(outside("p", 10, gib(20), "n1"))
        await made.settle()
        made.scene.show(pod("low", None, 5, gib(8)))
        await made.settle()
        assert not made.scene.is_placed("low")
        made.scene.show(outside("p", 10, gib(20)))
        made.scene.pass_backoff()
        await made.settle()
        assert made.scene.is_placed("low")


async def test_a_failed_bind_leaves_the_room_with_a_nominated_pod() -> None:
    """Where the API server refuses the bind, the room is held again for the pod that kube-scheduler nominated."""
    async with preemption_scene() as made:
        made.scene.node("n1")
        made.scene.report("n1", 24)
        nominated = outside("p", 10, gib(20), "n1")
        made.scene.show(nominated)
        await made.settle()
        assert try_bind(made, nominated) == ""
        made.scene.cache.forget(PodUid("p"))
        made.preemption.nominated.not_bound(nominated)
        await made.settle()
        assert await extender_of(made).filter(outside("late", 5, gib(8)), [N1]) == NO_MEMORY
