"""Relocation on small clusters: pods move only where all have a place, and rooms are kept for replacements."""

import asyncio
from typing import Any

import pytest

from placer.relocation.rules import RelocationMode, RelocationRules
from placer.scheduler.preemption import executor
from plimsoll.ids import PodUid
from plimsoll.kube.models import DisruptionBudget
from plimsoll.kube.transport import TransientError
from tests.placer.kube.objects import SHARE
from tests.placer.kube.preemption_scene import budget, on_gpu, pod, preemption_scene
from tests.placer.relocation.relocations import (
    COST,
    OWNER,
    RULES,
    halves,
    mover,
    node_of,
    other_halves,
    pair,
    plan,
    relocator_of,
    replacement,
    wait,
    wide,
)
from tests.servers.waiting import until_true


async def test_both_pods_end_with_a_place() -> None:
    """The mover is evicted, the waiting pod gets its GPU, and the replacement the room that was kept for it."""
    async with preemption_scene(RULES) as playing:
        halves(playing)
        await wait(playing, wide())
        await plan(playing)
        assert playing.evicted == ["m1"]
        assert playing.nominated[-1] == ("wide", "n1")
        playing.scene.show(pod("other", limits={"cpu": "0", SHARE: "50"}))
        await playing.settle()
        assert node_of(playing, "other") is None, "the room on n2 is kept"
        playing.scene.show(replacement("m2", 50))
        await playing.settle()
        assert node_of(playing, "m2") == "n2"
        assert node_of(playing, "wide") is None, "the mover has not ended"
        playing.scene.delete("m1")
        await playing.scene.settle_after_backoff()
        assert node_of(playing, "wide") == "n1"
        (moved,) = playing.parts.context.bus.moved  # type: ignore[attr-defined]
        assert (moved.name, moved.node, moved.to) == ("m1", "n1", "n2")


@pytest.mark.parametrize(
    "changed",
    [
        {"cost": None},
        {"cost": "cheap"},
        {"owner": {}},
        {"owner": {**OWNER, "kind": "DaemonSet"}},
        {"owner": {**OWNER, "kind": "Node"}},
        {"scheduler": "default-scheduler"},
        {"priority": 1},
    ],
)
async def test_a_pod_that_must_not_be_moved_stays(changed: Any) -> None:  # noqa: ANN401 - arguments
    """No annotation or a damaged one, no controller that replaces it elsewhere, another scheduler, more priority."""
    async with preemption_scene(RULES) as playing:
        halves(playing, **changed)
        await wait(playing, wide())
        await plan(playing)
        assert playing.evicted == []
        assert node_of(playing, "wide") is None


async def test_without_a_place_for_the_replacement_nothing_moves() -> None:
    """The only other GPU is too full for the mover."""
    async with preemption_scene(RULES) as playing:
        halves(playing)
        playing.scene.show(on_gpu("more", "GPU-n2-0", share=30))
        await wait(playing, wide())
        await plan(playing)
        assert playing.evicted == []


async def test_a_dry_run_says_what_would_move_and_moves_nothing() -> None:
    """The plan stands in the explanation, and neither a nomination nor an eviction is written."""
    async with preemption_scene(RelocationRules(RelocationMode.DRY_RUN, after_s=0.0, rest_s=0.0)) as playing:
        halves(playing)
        await wait(playing, wide())
        await plan(playing)
        told = relocator_of(playing).plan_for(PodUid("wide"))
        assert told == "Moving 1 pod at a cost of 1 makes room on n1: default/m1 from n1 to n2 (GPU-n2-0)."
        assert (playing.evicted, playing.nominated) == ([], [])
        assert not playing.scene.cache.nominator.nodes()


async def test_a_refused_eviction_ends_the_plan() -> None:
    """The API server refuses by a budget: no room is held any more, and the pod is not tried again at once."""

    async def refuse(name: str) -> None:
        raise TransientError(f"a budget keeps {name}", 429)

    async with preemption_scene(RULES) as playing:
        halves(playing)
        playing.faults.append(refuse)
        await wait(playing, wide())
        await plan(playing)
        playing.scene.late_s += 60
        for _ in range(3):
            await asyncio.sleep(0.01)
            await playing.settle()
        await plan(playing)
        assert playing.evicted == []
        await until_true(lambda: not playing.scene.cache.nominator.nodes())


@pytest.mark.parametrize("refused", ["m1", "m2"])
@pytest.mark.parametrize("spare_gpus", [0, 2])
async def test_of_two_pods_none_is_evicted_if_one_must_stay(refused: str, spare_gpus: int) -> None:
    """The API server keeps one of two pods that would move together: the other one stays too."""

    async def refuse(name: str) -> None:
        if name == refused:
            raise TransientError(f"a webhook keeps {name}", 429)

    async with preemption_scene(
        RelocationRules(RelocationMode.ON, after_s=0.0, rest_s=0.0, spare_gpus=spare_gpus)
    ) as playing:
        pair(playing)
        playing.faults.append(refuse)
        if not spare_gpus:
            await wait(playing, wide())
        await plan(playing)
        assert playing.evicted == []
        playing.faults.clear()
        playing.scene.late_s += executor.SPARED_S + 1
        for _ in range(3):
            await asyncio.sleep(0.01)
            await plan(playing)
        assert sorted(playing.evicted) == ["m1", "m2"]


async def test_a_pod_whose_owner_takes_the_annotation_back_stays() -> None:
    """The annotation goes while the API server is asked about the first of two pods: neither is evicted."""

    async def take_back(name: str) -> None:
        meta = playing.scene.pods[name].metadata
        kept = {key: value for key, value in (meta.annotations or {}).items() if key != COST}
        playing.scene.show_again(name, annotations=kept)

    async with preemption_scene(RULES) as playing:
        pair(playing)
        playing.faults.append(take_back)
        await wait(playing, wide())
        await plan(playing)
        assert playing.evicted == []


async def test_one_plan_does_not_pass_the_limit_of_an_owner() -> None:
    """Two pods of one owner would have to move together, and one an hour may."""
    async with preemption_scene(
        RelocationRules(RelocationMode.ON, after_s=0.0, rest_s=0.0, per_hour=1)
    ) as playing:
        pair(playing)
        await wait(playing, wide())
        await plan(playing)
        assert playing.evicted == []


async def test_a_moved_pod_that_ends_slowly_holds_up_others_for_a_time_only() -> None:
    """While the moved pod uses its grace period, its room is held, and pods are moved for another one that waits."""
    async with preemption_scene(RULES) as playing:
        halves(playing)
        playing.grace_s = 3600
        await wait(playing, wide())
        await plan(playing)
        assert playing.evicted == ["m1"]
        other_halves(playing)
        await wait(playing, wide("other", 100))
        await plan(playing)
        assert playing.evicted == ["m1"]
        playing.scene.late_s += RULES.keep_s + 1
        await plan(playing)
        assert playing.evicted == ["m1", "m3"]
        assert playing.nomination("wide") is not None


@pytest.mark.parametrize(
    "budgets",
    [
        (budget("web", "web", 0),),
        (budget("all", None, 0),),
        (budget("web", "web", 1), budget("all", None, 1)),
    ],
    ids=["spent", "of-all-pods", "two"],
)
async def test_a_pod_that_budgets_keep_stays_and_another_one_moves(
    budgets: tuple[DisruptionBudget, ...],
) -> None:
    """The API server evicts no pod of a spent budget, or of two, so a dearer pod moves."""
    async with preemption_scene(RULES) as playing:
        halves(playing, labels={"app": "web"})
        playing.scene.node("n3")
        playing.scene.report("n3", 24)
        playing.scene.show(mover("dear", "GPU-n3-0", 50, "5", namespace="b"))
        playing.budgets(*budgets)
        await wait(playing, wide())
        await plan(playing)
        assert playing.evicted == ["dear"]


async def test_two_pods_of_a_budget_that_allows_one_stay() -> None:
    """Each of them might move alone, and only both make room."""
    async with preemption_scene(RULES) as playing:
        pair(playing)
        playing.budgets(budget("all", None, 1))
        await wait(playing, wide())
        await plan(playing)
        assert playing.evicted == []


async def test_a_pod_that_has_just_started_is_not_moved() -> None:
    """A replacement has rest before it is moved again."""
    async with preemption_scene(RelocationRules(RelocationMode.ON, after_s=0.0, rest_s=10**10)) as playing:
        halves(playing)
        await wait(playing, wide())
        await plan(playing)
        assert playing.evicted == []


async def test_an_owner_has_only_so_many_pods_moved_in_an_hour() -> None:
    """The second pod of the owner stays until the hour is over."""
    async with preemption_scene(
        RelocationRules(RelocationMode.ON, after_s=0.0, rest_s=0.0, per_hour=1)
    ) as playing:
        halves(playing)
        await wait(playing, wide())
        await plan(playing)
        playing.scene.delete("m1")
        playing.scene.show(replacement("m2", 50))
        await playing.scene.settle_after_backoff()
        playing.scene.delete("wide")
        playing.scene.delete("stone")
        playing.scene.show(mover("m3", "GPU-n1-0", 50))
        await wait(playing, wide("again", 100))
        await plan(playing)
        assert playing.evicted == ["m1"]
        playing.scene.late_s += 3601
        await plan(playing)
        assert playing.evicted[1:] in (["m2"], ["m3"])


async def test_pods_are_moved_together_until_a_gpu_is_spare() -> None:
    """The pods of two half-full GPUs come together on one. Then enough GPUs are idle, and nothing moves any more."""
    rules = RelocationRules(RelocationMode.ON, after_s=0.0, rest_s=0.0, spare_gpus=1)
    async with preemption_scene(rules) as playing:
        for node in ("n1", "n2"):
            playing.scene.node(node)
            playing.scene.report(node, 24)
            playing.scene.show(mover(f"on-{node}", f"GPU-{node}-0", 50))
        await plan(playing)
        (evicted,) = playing.evicted
        (moved,) = playing.parts.context.bus.moved  # type: ignore[attr-defined]
        assert moved.reason == "moved to free a whole GPU"
        playing.scene.show(replacement("came", 50))
        await playing.settle()
        playing.scene.delete(evicted)
        await playing.settle()
        assert node_of(playing, "came") == moved.to != moved.node
        for _ in range(3):
            await plan(playing)
        assert playing.evicted == [evicted]


async def test_a_replacement_does_not_return_to_the_gpu_that_was_freed() -> None:
    """On one node with several GPUs too, a move gains the GPU, although the default policy prefers idle ones."""
    rules = RelocationRules(RelocationMode.ON, after_s=0.0, rest_s=0.0, spare_gpus=1)
    async with preemption_scene(rules) as playing:
        playing.scene.node("n1")
        playing.scene.report("n1", 24, 24)
        for index in (0, 1):
            playing.scene.show(mover(f"on-{index}", f"GPU-n1-{index}", 50))
        await plan(playing)
        (evicted,) = playing.evicted
        playing.scene.show(replacement("came", 50))
        playing.scene.delete(evicted)
        await playing.settle()
        assert node_of(playing, "came") == "n1"
        for _ in range(3):
            await plan(playing)
        assert playing.evicted == [evicted]


async def test_no_gpu_is_emptied_into_an_idle_one() -> None:
    """Where the pods of a GPU could only move to an idle GPU, nothing is gained and nothing moves."""
    rules = RelocationRules(RelocationMode.ON, after_s=0.0, rest_s=0.0, spare_gpus=2)
    async with preemption_scene(rules) as playing:
        for node in ("n1", "n2"):
            playing.scene.node(node)
            playing.scene.report(node, 24)
        playing.scene.show(mover("m1", "GPU-n1-0", 50))
        await plan(playing)
        assert playing.evicted == []
