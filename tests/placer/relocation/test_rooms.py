"""The rooms of a relocation: for how long they are kept, and that they outlive the placer that keeps them."""

import pytest
from redis.asyncio import Redis

from placer.relocation.memory import StoredRelocations
from placer.relocation.rules import RelocationMode, RelocationRules
from placer.scheduler.reporting.record import _Pending
from placer.stores.rooms import room_store
from plimsoll.ids import PodUid
from plimsoll.part.times import rfc3339
from plimsoll.placer_api.redis_keys import ROOMS
from plimsoll_cli.demo.servers import EmbeddedServer
from tests.placer.kube.objects import SHARE
from tests.placer.kube.preemption_scene import PreemptionScene, on_gpu, pod, preemption_scene
from tests.placer.relocation.relocations import (
    OWNER,
    RULES,
    halves,
    node_of,
    other_halves,
    plan,
    relocator_of,
    replacement,
    wait,
    wide,
)


async def settle_stuck(playing: PreemptionScene) -> None:
    """The placer looks once for pods that do not end."""
    playing.parts.controllers.stuck.look()
    await playing.settle()


def news_of(playing: PreemptionScene, name: str) -> list[_Pending]:
    """The news of a pod that would be written."""
    return list(playing.parts.core.results.recorder._waiting.get(PodUid(name), ()))


async def test_a_moved_pod_that_never_ends_is_awaited_for_a_time_only() -> None:
    """A finalizer keeps the moved pod. Its room is given up, which an event says, and another pod moves instead."""
    async with preemption_scene(RULES) as playing:
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
    async with preemption_scene(RULES) as playing:
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


async def test_the_room_of_a_replacement_that_never_comes_is_given_up() -> None:
    """After the time the room goes to another pod."""
    async with preemption_scene(RULES) as playing:
        halves(playing)
        await wait(playing, wide())
        await plan(playing)
        await wait(playing, pod("other", limits={"cpu": "0", SHARE: "50"}))
        assert node_of(playing, "other") is None
        playing.scene.late_s += RULES.keep_s + 1
        await plan(playing)
        await playing.scene.settle_after_backoff()
        assert node_of(playing, "other") == "n2"


@pytest.mark.parametrize("has_ended", [False, True])
async def test_a_leader_that_takes_over_keeps_both_rooms(valkey: EmbeddedServer, has_ended: bool) -> None:  # noqa: FBT001
    """The next leader holds the rooms of the waiting pod and of the replacement, and gives neither to a later pod.

    Meanwhile the moved pod may have ended, and the replacement may wait.
    """
    async with room_store(valkey.url) as rooms, preemption_scene(RULES, rooms) as playing:
        halves(playing)
        await wait(playing, wide())
        await plan(playing)
        pods, nodes = playing.scene.pods, playing.scene.nodes
    async with room_store(valkey.url) as rooms, preemption_scene(RULES, rooms) as playing:
        for name in nodes:
            playing.scene.node(name)
            playing.scene.report(name, 24)
        for one in pods.values():
            if not has_ended or one.metadata.name != "m1":
                playing.scene.show(one)
        playing.scene.show(pod("other", limits={"cpu": "0", SHARE: "50"}))
        if has_ended:
            playing.scene.show(replacement("m2", 50))
        await relocator_of(playing).restore()
        playing.preemption.nominated.check_all()
        await playing.settle()
        await plan(playing)
        assert node_of(playing, "other") is None
        if not has_ended:
            playing.scene.show(replacement("m2", 50))
        playing.scene.delete("m1")
        await playing.scene.settle_after_backoff()
        assert [node_of(playing, name) for name in ("wide", "m2", "other")] == ["n1", "n2", None]
        await plan(playing)
        assert (await rooms.read()).rooms == ()


@pytest.mark.parametrize("damaged", [b"[]", b'{"rooms":{}}', b"[{", b"\xff"])
async def test_rooms_that_somebody_damaged_are_none(valkey: EmbeddedServer, damaged: bytes) -> None:
    """A leader that finds no readable rooms keeps none, and stores its own over them."""
    async with Redis.from_url(valkey.url, protocol=2) as client, room_store(valkey.url) as rooms:
        await client.set(ROOMS, damaged)
        assert await rooms.read() == StoredRelocations()
        assert await rooms.write(StoredRelocations())
        assert await client.get(ROOMS) == b'{"rooms":[],"moves":{}}'


async def test_a_leader_keeps_no_room_for_a_replacement_that_has_a_place(valkey: EmbeddedServer) -> None:
    """The leader died once it had bound the replacement, and before it could store that."""
    async with room_store(valkey.url) as rooms, preemption_scene(RULES, rooms) as playing:
        halves(playing)
        await wait(playing, wide())
        await plan(playing)
        stored = await rooms.read()
        assert [(one.moved.metadata.name, one.node) for one in stored.rooms] == [("m1", "n2")]
    async with room_store(valkey.url) as rooms, preemption_scene(RULES, rooms) as playing:
        halves(playing)
        playing.scene.delete("m1")
        playing.scene.delete("stone")
        made = rfc3339(playing.parts.context.clock())
        owned = {"ownerReferences": [OWNER], "creationTimestamp": made}
        playing.scene.show(on_gpu("m2", "GPU-n2-0", share=50, metadata=owned))
        await relocator_of(playing).restore()
        assert not len(relocator_of(playing).replacements)


async def test_a_leader_that_takes_over_counts_the_moves_of_the_last_hour(valkey: EmbeddedServer) -> None:
    """An owner's limit of moves holds across a change of leaders, and ends when the hour is over."""
    rules = RelocationRules(RelocationMode.ON, after_s=0.0, rest_s=0.0, per_hour=1)
    async with room_store(valkey.url) as rooms, preemption_scene(rules, rooms) as playing:
        halves(playing)
        await wait(playing, wide())
        await plan(playing)
        await plan(playing)
        assert playing.evicted == ["m1"]
    async with room_store(valkey.url) as rooms, preemption_scene(rules, rooms) as playing:
        other_halves(playing)
        await relocator_of(playing).restore()
        await wait(playing, wide("other", 100))
        await plan(playing)
        assert playing.evicted == []
        playing.scene.late_s += 3601
        await plan(playing)
        assert playing.evicted == ["m3"]
