"""The search for victims on a full node for a pod with many rules: it is bounded, and other tasks run meanwhile."""

import asyncio
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from placer.scheduler.pods.pod_info import PodInfo
from placer.scheduler.preemption import victim_search
from placer.scheduler.preemption.victim_search import RESTARTS, UNSETTLED, VictimSearch
from placer.scheduler.preemption.victims import Victims
from plimsoll.ids import NodeName
from tests.placer.kube.objects import MEMORY, Object
from tests.placer.kube.preemption_scene import PreemptionScene, budget, on_gpu, pod, preemption_scene
from tests.placer.scheduler.plugins.topology.rules import REQUIRED, by_app

N1 = NodeName("n1")
GIB = 2**30


def fill(made: PreemptionScene, pods: int, **more: Any) -> None:  # noqa: ANN401 - passed on
    """A node of two GPUs whose CPU is taken by this many pods."""
    made.scene.node("n1", {"zone": "a"}, cpu=str(pods), advertised={"pods": "500"})
    made.scene.report("n1", 24, 24)
    for number in range(pods):
        name = f"low{number:03}"
        labels = {"app": name}
        if number < 20:
            made.scene.show(on_gpu(name, f"GPU-n1-{number % 2}", 0, share=1, cpu="1", labels=labels, **more))
        else:
            made.scene.show(pod(name, "n1", 0, {"cpu": "1"}, labels=labels, **more))


def terms(count: int, app: str = "other") -> Object:
    """This many anti-affinity terms about distinct apps."""
    documents = [
        {"topologyKey": "zone", "labelSelector": by_app(f"{app}{number}")} for number in range(count)
    ]
    return {"affinity": {"podAntiAffinity": {REQUIRED: documents}}}


def preemptor(made: PreemptionScene, rules: int) -> PodInfo:
    """A pod with this many rules that needs the room of two pods of a full node."""
    limits = {"cpu": "2", MEMORY: str(GIB)}
    return made.want(pod("high", None, 10, limits, labels={"app": "high"}, **terms(rules)))


def calls(do: Callable[[], object]) -> int:
    """The number of calls that something makes, those of built-in functions included."""
    count = 0

    def note(_: FrameType, event: str, __: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        do()
    finally:
        sys.setprofile(None)
    return count


def walk(made: PreemptionScene, wanted: PodInfo) -> Victims | tuple[str, ...]:
    """All steps on the node, one after the other."""
    steps = made.preemption.search._steps(wanted, N1)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: Victims | tuple[str, ...] = end.value
            return found


@pytest.mark.parametrize("of_others", [False, True], ids=["own rules", "rules of others"])
async def test_the_work_grows_with_the_pods_and_not_with_their_square(*, of_others: bool) -> None:
    """Four times as many pods on the node cost about four times as many calls, for a pod with ten rules too."""
    found = []
    for pods in (30, 120):
        async with preemption_scene() as made:
            fill(made, pods, **(terms(10, "nobody") if of_others else {}))
            wanted = preemptor(made, 10)
            assert isinstance(walk(made, wanted), Victims)
            found.append(calls(lambda made=made, wanted=wanted: walk(made, wanted)))  # type: ignore[misc]
    few, many = found
    assert many < 5 * few


async def test_other_tasks_run_during_the_search_on_a_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each pod that is tried is a step of its own, after which others may run. The victims stay the same."""
    monkeypatch.setattr(victim_search, "SLICE_S", 0.0)
    async with preemption_scene() as made:
        fill(made, 40)
        wanted = preemptor(made, 10)
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(other(), name="other")
        found = await made.preemption.search.on_node(wanted, N1)
        task.cancel()
        assert isinstance(found, Victims)
        assert found == walk(made, wanted)
        assert turns > 3 * 40  # each pod is removed and put back for each GPU


async def test_a_node_that_changes_meanwhile_is_begun_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod that ends during the search is no victim, and its room counts."""
    monkeypatch.setattr(victim_search, "SLICE_S", 0.0)
    async with preemption_scene() as made:
        fill(made, 10)
        wanted = preemptor(made, 2)
        before = await made.preemption.search.on_node(wanted, N1)
        assert isinstance(before, Victims)
        assert len(before.pods) == 2
        search = asyncio.create_task(made.preemption.search.on_node(wanted, N1), name="search")
        for _ in range(25):  # it tries pods on the first GPU then
            await asyncio.sleep(0)
        assert not search.done()
        gone = before.pods[0].pod.metadata.name
        made.scene.delete(gone)
        found = await search
        assert isinstance(found, Victims)
        assert len(found.pods) == 1
        assert gone not in {one.uid for one in found.pods}
        assert made.preemption.search.confirm(wanted, before) is None


@pytest.mark.parametrize("change", ["node", "budget"])
async def test_a_search_that_is_overtaken_each_time_ends(
    change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that keeps changing ends the search after some attempts; once it is calm, the pod gets its room."""
    monkeypatch.setattr(victim_search, "SLICE_S", 0.0)
    async with preemption_scene() as made:
        fill(made, 10)
        wanted = preemptor(made, 2)
        turns = 0

        async def churn() -> None:
            nonlocal turns
            while True:
                turns += 1
                if change == "node":
                    made.scene.report("n1", 24, 24 - turns % 2)
                else:
                    made.budgets(budget("b", "low000", turns))
                await asyncio.sleep(0)

        task = asyncio.create_task(churn(), name="churn")
        found = await made.preemption.search.on_node(wanted, N1)
        assert found == (UNSETTLED,)
        assert turns <= RESTARTS + 2
        explained = await made.preemption.refuse(wanted)
        assert explained is not None
        assert explained.may_pass
        assert not made.deleted
        task.cancel()
        await made.preemption.refuse(wanted)
        await made.settle()
        assert len(made.deleted) == 2


async def test_a_node_that_changes_after_it_was_tried_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports come while other nodes are tried. The victims that are returned are those of this moment."""
    async with preemption_scene() as made:
        fill(made, 10)
        for number in range(5):
            made.scene.node(f"m{number}")
            made.scene.show(pod(f"other{number}", f"m{number}", 5, {"cpu": "8"}))
        search, on_node = made.preemption.search, VictimSearch.on_node

        async def overtaken(self: VictimSearch, wanted: PodInfo, node: NodeName) -> Victims | tuple[str, ...]:
            found = await on_node(self, wanted, node)
            if node == "m4":
                made.scene.report("n1", 24, 23)
            return found

        monkeypatch.setattr(VictimSearch, "on_node", overtaken)
        wanted = preemptor(made, 2)
        found = await search.search(wanted)
        assert isinstance(found, Victims)
        assert found.node == N1
        assert search.confirm(wanted, found) is not None


async def test_victims_are_confirmed_with_a_plan_of_the_pods_own() -> None:
    """Victims that were found for another pod of the kind are confirmed for this one, in one step."""
    async with preemption_scene() as made:
        fill(made, 10)
        wanted = preemptor(made, 2)
        found = await made.preemption.search.search(wanted)
        twin = made.want(
            pod("twin", None, 10, {"cpu": "2", MEMORY: str(GIB)}, labels={"app": "high"}, **terms(2))
        )
        again = await made.preemption.search.search(twin)
        assert found is again
        assert isinstance(again, Victims)
        confirmed = made.preemption.search.confirm(twin, again)
        assert confirmed is not None
        assert confirmed.pods == again.pods
        assert confirmed.plan.booking.pod == "twin"
