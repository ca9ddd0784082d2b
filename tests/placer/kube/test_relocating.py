"""Relocation on small clusters: pods move only where all have a place, and rooms are kept for replacements."""

import asyncio
from typing import Any

import pytest

from placer.kube import preemption_orders
from placer.kube.record import _Pending
from placer.kube.relocation.relocating import Relocating
from placer.kube.relocation.rules import Mode, RelocationRules
from placer.room_store import room_store
from plimsoll.cli.demo.servers import EmbeddedServer
from plimsoll.ids import PodUid
from plimsoll.kube.models import DisruptionBudget, Pod
from plimsoll.kube.transport import TransientError
from plimsoll.part.times import rfc3339
from tests.placer.kube.boards import Board, board, budget, on_gpu, pod
from tests.placer.kube.scene import SHARE, Object
from tests.servers.waiting import until_true

RULES = RelocationRules(Mode.ON, after_s=0.0, rest_s=0.0)
COST = "plimsoll.dev/relocation-cost"
OWNER = {"uid": "set-1", "kind": "ReplicaSet", "name": "web", "controller": True}


def mover(
    name: str,
    gpu: str,
    share: int,
    cost: str | None = "1",
    owner: Object | None = None,
    namespace: str = "default",
    **more: Any,  # noqa: ANN401
) -> Pod:
    """A pod of a controller on this GPU; its annotation states what it costs to move it."""
    owners = [OWNER if owner is None else owner] if owner != {} else []
    metadata = {"namespace": namespace, "ownerReferences": owners}
    made = on_gpu(name, gpu, share=share, metadata=metadata, started="2026-01-01T00:00:00Z", **more)
    if cost is not None and made.metadata.annotations is not None:
        made.metadata.annotations[COST] = cost
    return made


def replacement(name: str, share: int) -> Pod:
    """The pod that the controller makes in place of a moved one."""
    return pod(
        name,
        limits={"cpu": "0", SHARE: str(share)},
        annotations={COST: "1"},
        metadata={"ownerReferences": [OWNER]},
    )


def wide(name: str = "wide", share: int = 90, priority: int = 0) -> Pod:
    """A pod that wants most of a GPU."""
    return pod(name, priority=priority, limits={"cpu": "0", SHARE: str(share)})


def halves(playing: Board, *, cost: str | None = "1", **more: Any) -> None:  # noqa: ANN401 - passed on
    """Two nodes of one GPU, each half full; the pod on n1 may be moved."""
    for node in ("n1", "n2"):
        playing.scene.node(node)
        playing.scene.report(node, 24)
    playing.scene.show(mover("m1", "GPU-n1-0", 50, cost, **more))
    playing.scene.show(on_gpu("stone", "GPU-n2-0", share=50))


def pair(playing: Board) -> None:
    """Two nodes of one GPU: on n1 two pods that may be moved, and room for both on n2, which is in use."""
    for node in ("n1", "n2"):
        playing.scene.node(node)
        playing.scene.report(node, 24)
    for name in ("m1", "m2"):
        playing.scene.show(mover(name, "GPU-n1-0", 40))
    playing.scene.show(on_gpu("stone", "GPU-n2-0", share=20))


async def wait(playing: Board, *pods: Pod) -> None:
    """These pods wait, and are refused."""
    for one in pods:
        playing.scene.show(one)
    await playing.settle()


async def plan(playing: Board) -> None:
    """Relocation reads the waiting pods once, and carries out what it found."""
    await relocating_of(playing).look()
    await playing.settle()


def relocating_of(playing: Board) -> Relocating:
    """The part under test."""
    return playing.front_end._relocating


def node_of(playing: Board, name: str) -> str | None:
    """The node of a pod, as the watch shows it."""
    return playing.scene.pods[name].spec.nodeName


def other_halves(playing: Board) -> None:
    """Two more nodes: on n3 a pod that may be moved, and room for it on n4."""
    for node in ("n3", "n4"):
        playing.scene.node(node, labels={"zone": "b"})
        playing.scene.report(node, 24)
    playing.scene.show(mover("m3", "GPU-n3-0", 60))
    playing.scene.show(on_gpu("more", "GPU-n4-0", share=40))


async def settle_stuck(playing: Board) -> None:
    """The placer looks once for pods that do not end."""
    playing.front_end._stuck.look()
    await playing.settle()


def news_of(playing: Board, name: str) -> list[_Pending]:
    """The news of a pod that would be written."""
    return list(playing.front_end._recorder._waiting.get(PodUid(name), ()))


async def test_both_pods_end_with_a_place() -> None:
    """The mover is evicted, the waiting pod gets its GPU, and the replacement the room that was kept for it."""
    async with board(RULES) as playing:
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
        (moved,) = playing.front_end.bus.moved  # type: ignore[attr-defined]
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
    async with board(RULES) as playing:
        halves(playing, **changed)
        await wait(playing, wide())
        await plan(playing)
        assert playing.evicted == []
        assert node_of(playing, "wide") is None


async def test_without_a_place_for_the_replacement_nothing_moves() -> None:
    """The only other GPU is too full for the mover."""
    async with board(RULES) as playing:
        halves(playing)
        playing.scene.show(on_gpu("more", "GPU-n2-0", share=30))
        await wait(playing, wide())
        await plan(playing)
        assert playing.evicted == []


async def test_a_dry_run_says_what_would_move_and_moves_nothing() -> None:
    """The plan stands in the explanation, and neither a nomination nor an eviction is written."""
    async with board(RelocationRules(Mode.DRY_RUN, after_s=0.0, rest_s=0.0)) as playing:
        halves(playing)
        await wait(playing, wide())
        await plan(playing)
        told = relocating_of(playing).plan_for(PodUid("wide"))
        assert told == "Moving 1 pod at a cost of 1 makes room on n1: default/m1 from n1 to n2 (GPU-n2-0)."
        assert (playing.evicted, playing.nominated) == ([], [])
        assert not playing.scene.cluster.nominations.nodes()


async def test_the_room_of_a_replacement_that_never_comes_is_given_up() -> None:
    """After the time the room goes to another pod."""
    async with board(RULES) as playing:
        halves(playing)
        await wait(playing, wide())
        await plan(playing)
        await wait(playing, pod("other", limits={"cpu": "0", SHARE: "50"}))
        assert node_of(playing, "other") is None
        playing.scene.late_s += RULES.keep_s + 1
        await plan(playing)
        await playing.scene.settle_after_backoff()
        assert node_of(playing, "other") == "n2"


async def test_a_refused_eviction_ends_the_plan() -> None:
    """The API server refuses by a budget: no room is held any more, and the pod is not tried again at once."""

    async def refuse(name: str) -> None:
        raise TransientError(f"a budget keeps {name}", 429)

    async with board(RULES) as playing:
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
        await until_true(lambda: not playing.scene.cluster.nominations.nodes())


@pytest.mark.parametrize("refused", ["m1", "m2"])
@pytest.mark.parametrize("spare_gpus", [0, 2])
async def test_of_two_pods_none_is_evicted_if_one_must_stay(refused: str, spare_gpus: int) -> None:
    """The API server keeps one of two pods that would move together: the other one stays too."""

    async def refuse(name: str) -> None:
        if name == refused:
            raise TransientError(f"a webhook keeps {name}", 429)

    async with board(RelocationRules(Mode.ON, after_s=0.0, rest_s=0.0, spare_gpus=spare_gpus)) as playing:
        pair(playing)
        playing.faults.append(refuse)
        if not spare_gpus:
            await wait(playing, wide())
        await plan(playing)
        assert playing.evicted == []
        playing.faults.clear()
        playing.scene.late_s += preemption_orders.SPARED_S + 1
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

    async with board(RULES) as playing:
        pair(playing)
        playing.faults.append(take_back)
        await wait(playing, wide())
        await plan(playing)
        assert playing.evicted == []


async def test_one_plan_does_not_pass_the_limit_of_an_owner() -> None:
    """Two pods of one owner would have to move together, and one an hour may."""
    async with board(RelocationRules(Mode.ON, after_s=0.0, rest_s=0.0, per_hour=1)) as playing:
        pair(playing)
        await wait(playing, wide())
        await plan(playing)
        assert playing.evicted == []


async def test_a_moved_pod_that_ends_slowly_holds_up_others_for_a_time_only() -> None:
    """While the moved pod uses its grace period, its room is held, and pods are moved for another one that waits."""
    async with board(RULES) as playing:
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


async def test_a_moved_pod_that_never_ends_is_awaited_for_a_time_only() -> None:
    """A finalizer keeps the moved pod. Its room is given up, which an event says, and another pod moves instead."""
    async with board(RULES) as playing:
        halves(playing)
        await wait(playing, wide())
        await plan(playing)
        other_halves(playing)
        await settle_stuck(playing)
        assert playing.nomination("wide") == ("n1", {"m1"})
        playing.scene.late_s += RULES.keep_s + 1
        await settle_stuck(playing)
        assert playing.nomination("wide") is None
        assert playing.nominated[-1] == ("wide", None)
        [told] = [one.news for one in news_of(playing, "wide") if one.news.reason == "NominationGivenUp"]
        assert "default/m1" in told.note
        await plan(playing)
        assert playing.evicted == ["m1", "m3"]
        playing.scene.delete("m3")
        await playing.scene.settle_after_backoff()
        assert node_of(playing, "wide") == "n3"


async def test_a_room_is_kept_for_as_long_as_the_moved_pod_may_end() -> None:
    """A StatefulSet makes the replacement once the pod is gone, here at the end of an hour of grace."""
    async with board(RULES) as playing:
        halves(playing)
        playing.grace_s = 3600
        await wait(playing, wide())
        await plan(playing)
        playing.scene.late_s += 3600
        await plan(playing)
        playing.scene.delete("m1")
        await wait(playing, pod("other", limits={"cpu": "0", SHARE: "50"}))
        playing.scene.show(replacement("m2", 50))
        await playing.scene.settle_after_backoff()
        assert [node_of(playing, name) for name in ("wide", "m2", "other")] == ["n1", "n2", None]


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
    async with board(RULES) as playing:
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
    async with board(RULES) as playing:
        pair(playing)
        playing.budgets(budget("all", None, 1))
        await wait(playing, wide())
        await plan(playing)
        assert playing.evicted == []


async def test_a_pod_that_has_just_started_is_not_moved() -> None:
    """A replacement has rest before it is moved again."""
    async with board(RelocationRules(Mode.ON, after_s=0.0, rest_s=10**10)) as playing:
        halves(playing)
        await wait(playing, wide())
        await plan(playing)
        assert playing.evicted == []


async def test_an_owner_has_only_so_many_pods_moved_in_an_hour() -> None:
    """The second pod of the owner stays until the hour is over."""
    async with board(RelocationRules(Mode.ON, after_s=0.0, rest_s=0.0, per_hour=1)) as playing:
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
    rules = RelocationRules(Mode.ON, after_s=0.0, rest_s=0.0, spare_gpus=1)
    async with board(rules) as playing:
        for node in ("n1", "n2"):
            playing.scene.node(node)
            playing.scene.report(node, 24)
            playing.scene.show(mover(f"on-{node}", f"GPU-{node}-0", 50))
        await plan(playing)
        (evicted,) = playing.evicted
        (moved,) = playing.front_end.bus.moved  # type: ignore[attr-defined]
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
    rules = RelocationRules(Mode.ON, after_s=0.0, rest_s=0.0, spare_gpus=1)
    async with board(rules) as playing:
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
    rules = RelocationRules(Mode.ON, after_s=0.0, rest_s=0.0, spare_gpus=2)
    async with board(rules) as playing:
        for node in ("n1", "n2"):
            playing.scene.node(node)
            playing.scene.report(node, 24)
        playing.scene.show(mover("m1", "GPU-n1-0", 50))
        await plan(playing)
        assert playing.evicted == []


@pytest.mark.parametrize("has_ended", [False, True])
async def test_a_leader_that_takes_over_keeps_both_rooms(valkey: EmbeddedServer, has_ended: bool) -> None:  # noqa: FBT001
    """The next leader holds the rooms of the waiting pod and of the replacement, and gives neither to a later pod.

    Meanwhile the moved pod may have ended, and the replacement may wait.
    """
    async with room_store(valkey.url) as rooms, board(RULES, rooms) as playing:
        halves(playing)
        await wait(playing, wide())
        await plan(playing)
        pods, nodes = playing.scene.pods, playing.scene.nodes
    async with room_store(valkey.url) as rooms, board(RULES, rooms) as playing:
        for name in nodes:
            playing.scene.node(name)
            playing.scene.report(name, 24)
        for one in pods.values():
            if not has_ended or one.metadata.name != "m1":
                playing.scene.show(one)
        playing.scene.show(pod("other", limits={"cpu": "0", SHARE: "50"}))
        if has_ended:
            playing.scene.show(replacement("m2", 50))
        await relocating_of(playing).kept.restore()
        playing.preempting.check_all()
        await playing.settle()
        await plan(playing)
        assert node_of(playing, "other") is None
        if not has_ended:
            playing.scene.show(replacement("m2", 50))
        playing.scene.delete("m1")
        await playing.scene.settle_after_backoff()
        assert [node_of(playing, name) for name in ("wide", "m2", "other")] == ["n1", "n2", None]
        await plan(playing)
        assert await rooms.read() == ()


async def test_a_leader_keeps_no_room_for_a_replacement_that_has_a_place(valkey: EmbeddedServer) -> None:
    """The leader died once it had bound the replacement, and before it could store that."""
    async with room_store(valkey.url) as rooms, board(RULES, rooms) as playing:
        halves(playing)
        await wait(playing, wide())
        await plan(playing)
        stored = await rooms.read()
        assert [(one.moved.metadata.name, one.node) for one in stored] == [("m1", "n2")]
    async with room_store(valkey.url) as rooms, board(RULES, rooms) as playing:
        halves(playing)
        playing.scene.delete("m1")
        playing.scene.delete("stone")
        made = rfc3339(playing.front_end.clock())
        owned = {"ownerReferences": [OWNER], "creationTimestamp": made}
        playing.scene.show(on_gpu("m2", "GPU-n2-0", share=50, metadata=owned))
        await relocating_of(playing).kept.restore()
        assert not len(relocating_of(playing).kept)
