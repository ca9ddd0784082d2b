"""The pool of shared GPUs on a real kubelet, beside a device plugin and pods that ask it for whole GPUs."""

import asyncio
import contextlib
import random
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest

from plimsoll.pool import CARD
from tests.node.cards import Watch, watching
from tests.node.driver import UUIDS
from tests.node.node import START_S, Node, is_ready, program_pod
from tests.node.parts import Parts, running_parts
from tests.node.places import NODE, ROOT
from tests.node.pool import NAMESPACE, Pool, has_devices, running_controller, running_plugin
from tests.node.progress import say
from tests.node.tenants import GPU_KEY, runs, template
from tests.placer.webhook.scene import RESTRICTED, scene
from tests.servers.apiserver import Object
from tests.servers.waiting import until

pytestmark = [pytest.mark.node, pytest.mark.timeout(1200)]

CYCLES = 50
SEED = 13
AT_ONCE = 4
"""More pods than cards, so that some wait."""


@pytest.fixture(scope="module")
async def pool(node: Node) -> AsyncIterator[Pool]:
    """The device plugin."""
    async with running_plugin(node) as found:
        yield found


@pytest.fixture(scope="module")
async def parts(node: Node, pool: Pool) -> AsyncIterator[Parts]:
    """Broker, monitor and placer of a node with a pool."""
    assert pool.plugin.is_running
    async with running_parts(node, pool_namespace=NAMESPACE) as found:
        yield found


@pytest.fixture(scope="module")
async def tenants(node: Node, parts: Parts) -> AsyncIterator[str]:
    """A `restricted` namespace whose pods pass the webhook."""
    assert parts.broker.is_running
    await node.api.kubectl("apply", "--filename", str(ROOT / "deploy" / "csi-driver.yaml"))
    name = f"tenants-{uuid.uuid4().hex[:8]}"
    await node.api.must("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": RESTRICTED}})
    await node.until_account(name)
    async with scene(node.api, name):
        yield name
        await node.remove_namespace(name)


@pytest.fixture
async def watch(node: Node, pool: Pool) -> AsyncIterator[Watch]:
    """The independent watch. No card may ever have two owners in these tests, but where one says so."""
    assert pool.plugin.is_running
    async with watching(node, NAMESPACE) as found:
        yield found
    say("cards watched", looks=found.looks, most_sharing=found.most_sharing, double=len(found.double))
    assert not found.double


def native(name: str, *command: str) -> Object:
    """A pod that asks the device plugin for one whole GPU, through kube-scheduler."""
    return program_pod(
        name, *(command or ("sleep", "600")), limits={"nvidia.com/gpu": "1"}, runtimeClassName="nvidia"
    )


def shared(name: str, *command: str, **annotations: str) -> Object:
    """A pod with two resource lines. Annotations are named without their domain, with `_` for `-`."""
    named = {f"plimsoll.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    return template(name, *(command or ("sleep", "600")), annotations=named)


def card(pod: Object) -> str:
    """The card of a pod that shares."""
    return str(pod["metadata"]["annotations"][GPU_KEY])


async def test_a_card_is_acquired_used_and_given_back(
    node: Node, pool: Pool, tenants: str, space: str, watch: Watch
) -> None:
    """The pod waits for a GPU, gets one, shares it; the other card stays native; idle, the card goes back at once."""
    async with running_controller(node, "on-demand"):
        assert await pool.cards() == []
        await node.create(tenants, shared("first", "sh", "-c", "view; sleep 600"))
        first = await node.until_ready(tenants, "first")
        told = await node.events(tenants, "first")
        assert any("acquiring a GPU (on node-1)" in one for one in told), told
        await pool.until_cards(card(first))
        seen = await node.seen(tenants, "first")
        assert [one["uuid"] for one in seen["nvml"]["gpus"]] == [card(first)]
        await node.create(tenants, shared("second"))
        second = await node.until_ready(tenants, "second")
        assert card(second) == card(first), "the first card has room for both"
        # A native pod gets the other card, and a second one waits for a card of the device plugin.
        await node.create(space, native("whole", "sh", "-c", "view; sleep 600"))
        await node.until_ready(space, "whole")
        seen = await node.seen(space, "whole")
        assert [one["uuid"] for one in seen["nvml"]["gpus"]] == [one for one in UUIDS if one != card(first)]
        await node.create(space, native("late"))
        say("beside", shared=card(first), native=seen["nvml"]["gpus"][0]["uuid"])
        for name in ("first", "second"):
            await node.delete(tenants, name)
        await pool.until_cards()
        await node.until_ready(space, "late")  # by the card that went back
        for name in ("whole", "late"):
            await node.delete(space, name)
    assert watch.most_sharing == 2


async def test_a_pod_waits_while_native_pods_have_all_cards(
    node: Node, pool: Pool, tenants: str, space: str, watch: Watch
) -> None:
    """It says so, and gets a card as soon as a native pod ends."""
    async with running_controller(node, "on-demand"):
        for name in ("one", "two"):
            await node.create(space, native(name))
            await node.until_ready(space, name)
        await node.create(tenants, shared("waits"))

        async def told() -> list[str]:
            return [one for one in await node.events(tenants, "waits") if "none to acquire" in one]

        say("waits", told=(await until(told, timeout_s=START_S))[-1])
        await node.delete(space, "one")
        await node.until_ready(tenants, "waits")
        await node.delete(tenants, "waits")
        await node.delete(space, "two")
        await pool.until_cards()
    assert watch.looks


async def test_names_share_and_take_cards(node: Node, pool: Pool, tenants: str, watch: Watch) -> None:
    """Two pods with one name get one card, another name takes another card, and a UUID pins a card."""
    async with running_controller(node, "on-demand"):
        await node.create(tenants, shared("a1", gpu_id="my-gpu"))
        await node.create(tenants, shared("a2", gpu_id="my-gpu"))
        await node.create(tenants, shared("b1", gpu_id="other-gpu"))
        a1, a2, b1 = [await node.until_ready(tenants, name) for name in ("a1", "a2", "b1")]
        assert card(a1) == card(a2) != card(b1)
        say("names", my_gpu=card(a1), other_gpu=card(b1))
        for name in ("a1", "a2", "b1"):
            await node.delete(tenants, name)
        await pool.until_cards()
        for number, gpu in enumerate(UUIDS):
            pool.preferred.write_text(" ".join(reversed([gpu, *(one for one in UUIDS if one != gpu)])))
            await node.create(tenants, shared(f"pinned-{number}", gpu_id=gpu))
            assert card(await node.until_ready(tenants, f"pinned-{number}")) == gpu
            await node.delete(tenants, f"pinned-{number}")
            await pool.until_cards()
        pool.preferred.unlink()
    assert watch.looks


async def test_a_vanished_reservation_costs_no_pod(
    node: Node, pool: Pool, tenants: str, watch: Watch
) -> None:
    """It is deleted by hand, and the kubelet gives the next one another card. The pod runs on, and gets an event."""
    async with running_controller(node, "hybrid(0, 1)"):
        await node.create(tenants, shared("lasting"))
        pod = await node.until_ready(tenants, "lasting")
        mine, before = card(pod), runs(pod)
        other = next(one for one in UUIDS if one != mine)
        await pool.until_cards(mine)
        pool.preferred.write_text(f"{other} {mine}")
        [reservation] = await pool.reservations()
        await node.delete(NAMESPACE, reservation["metadata"]["name"])
        await pool.until_cards(mine)  # by way of the other one, which went back
        told = await node.events(tenants, "lasting")
        say("lost and reserved again", told=[one for one in told if "eserv" in one])
        assert any(one.startswith("ReservationLost") for one in told)
        assert any(
            one.startswith("ReservationRestored") for one in await _until_told(node, tenants, "lasting")
        )
        now = await node.pod(tenants, "lasting")
        assert runs(now) == before, "the pod ran on"
        pool.preferred.unlink()
        await node.delete(tenants, "lasting")
        await pool.until_cards()
    assert watch.looks


async def _until_told(node: Node, namespace: str, name: str) -> list[str]:
    async def look() -> list[str]:
        told = await node.events(namespace, name)
        return told if any(one.startswith("ReservationRestored") for one in told) else []

    return await until(look, timeout_s=START_S)


async def test_the_device_plugin_and_the_kubelet_start_anew(
    node: Node, pool: Pool, tenants: str, watch: Watch
) -> None:
    """Pods and reservations run on, and afterwards cards join and leave as before."""
    async with running_controller(node, "on-demand"):
        await node.create(tenants, shared("lasting", gpu_id="old-gpu"))
        pod = await node.until_ready(tenants, "lasting")
        before = runs(pod)
        [reservation] = await pool.reservations()
        await pool.plugin.kill()
        await until(lambda: has_devices(node, 0), timeout_s=START_S)
        await pool.plugin.start()
        await until(lambda: has_devices(node, len(UUIDS)), timeout_s=START_S)
        [same] = await pool.reservations()
        assert same["metadata"]["uid"] == reservation["metadata"]["uid"]
        await node.kubelet.kill()
        await node.kubelet.start()
        await until(lambda: is_ready(node.api), timeout_s=START_S)
        await until(lambda: has_devices(node, len(UUIDS)), timeout_s=START_S)
        await pool.until_cards(card(pod))  # the same reservation, or another one where the kubelet ended that
        [now] = await pool.reservations()
        say("after the kubelet", same=now["metadata"]["uid"] == reservation["metadata"]["uid"])
        await node.create(tenants, shared("new", gpu_id="new-gpu"))
        new = await node.until_ready(tenants, "new")
        assert card(new) != card(pod)
        assert runs(await node.pod(tenants, "lasting")) == before
        for name in ("new", "lasting"):
            await node.delete(tenants, name)
        await pool.until_cards()
    assert watch.looks


async def test_a_broker_that_is_away_keeps_no_card_from_the_pool(
    node: Node, pool: Pool, parts: Parts, tenants: str, watch: Watch
) -> None:
    """The broker names the card before the reservation runs. Without a broker the reservation names it by itself."""
    async with running_controller(node, "on-demand"):
        await node.create(tenants, shared("soon"))
        await node.until_ready(tenants, "soon")
        [reservation] = await pool.reservations()
        assert reservation["metadata"]["annotations"][CARD] == card(await node.pod(tenants, "soon"))
        await node.delete(tenants, "soon")
        await pool.until_cards()
        await parts.broker.kill()
        await node.create(tenants, shared("later"))
        [gpu] = await pool.until_count(1)
        [reservation] = await pool.reservations()
        assert CARD not in reservation["metadata"]["annotations"]
        await parts.broker.start()  # a pod has no volume without one
        assert card(await node.until_ready(tenants, "later")) == gpu
        await node.delete(tenants, "later")
        await pool.until_cards()
    assert watch.looks


async def test_a_drained_node_gives_its_cards_back(
    node: Node, pool: Pool, tenants: str, watch: Watch
) -> None:
    """The drain evicts pods and reservations alike, and nothing joins until the node takes pods again."""
    async with running_controller(node, "reservation(1)"):
        await pool.until_count(1)  # ahead of any pod
        await node.create(tenants, shared("evicted"))
        await node.until_ready(tenants, "evicted")
        await pool.until_count(2)  # one is in use, so another one is kept ready
        arguments = ("--force", "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=120s")
        out = await node.api.kubectl("drain", NODE, *arguments)
        say("drain", told=out.splitlines()[-3:])
        await pool.until_cards()
        await node.api.kubectl("uncordon", NODE)
        await pool.until_count(1)
    async with running_controller(node, "on-demand"):
        await pool.until_cards()
    assert watch.looks


async def test_two_controllers_make_one_pool(node: Node, pool: Pool, tenants: str, watch: Watch) -> None:
    """The second controller takes over when the first is killed, with the same reservation."""
    async with running_controller(node, "on-demand") as first, contextlib.AsyncExitStack() as stack:
        second = asyncio.create_task(
            stack.enter_async_context(running_controller(node, "on-demand", "pool-b"))
        )
        await node.create(tenants, shared("kept"))
        pod = await node.until_ready(tenants, "kept")
        await pool.until_cards(card(pod))
        assert not second.done(), "the second one has no Lease"
        [reservation] = await pool.reservations()
        await first.kill()
        await second
        [same] = await pool.reservations()
        assert same["metadata"]["uid"] == reservation["metadata"]["uid"]
        await node.delete(tenants, "kept")
        await pool.until_cards()
    assert watch.looks


async def test_random_pods_never_share_a_card_by_mistake(
    node: Node, pool: Pool, tenants: str, space: str, watch: Watch
) -> None:
    """50 pods that share or want a whole GPU come and go at random; in the end the device plugin has all cards."""
    chance = random.Random(SEED)  # noqa: S311 - drawn by a seed, so that a run can be repeated
    alive: list[tuple[str, str]] = []
    served = {"shared": 0, "native": 0}
    async with running_controller(node, "hybrid(0, 2)"):
        for number in range(CYCLES):
            kind = chance.choice(("shared", "shared", "native"))
            namespace, name = (tenants if kind == "shared" else space), f"{kind}-{number}"
            pod: dict[str, Any] = shared(name) if kind == "shared" else native(name)
            await node.create(namespace, pod)
            alive.append((namespace, name))
            await asyncio.sleep(chance.uniform(0, 2))  # so that changes meet cards in every phase
            while len(alive) >= AT_ONCE:
                served[await _end_one(node, chance, alive)] += 1
        while alive:
            served[await _end_one(node, chance, alive)] += 1
        await pool.until_cards()
        await until(lambda: has_devices(node, len(UUIDS)), timeout_s=START_S)
    say("random cycles", served=served, native=len(watch.native_seen), shared=len(watch.shared_seen))
    assert sum(served.values()) == CYCLES
    assert watch.native_seen, "no native pod was seen with a card"
    assert watch.shared_seen, "no shared pod was seen with a card"


async def _end_one(node: Node, chance: random.Random, alive: list[tuple[str, str]]) -> str:
    """Delete one of the pods that run; at least one can. Returns its kind."""

    async def running() -> list[tuple[str, str]]:
        found = []
        for namespace, name in alive:
            pod = await node.pod(namespace, name)
            if pod["status"].get("phase") == "Running":
                found.append((namespace, name))
        return found

    namespace, name = chance.choice(await until(running, timeout_s=START_S))
    alive.remove((namespace, name))
    await node.delete(namespace, name)
    return name.partition("-")[0]
