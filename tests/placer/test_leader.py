"""Two placers of one cluster: at most one places at any time, and the other goes on when it dies."""

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec
import pytest
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig

from placer.scheduler.binding.fence import FENCE
from plimsoll.bus.subjects import STREAM, pod_subject
from plimsoll.contract import RELOCATION_COST
from plimsoll.envelope import decode_event
from plimsoll.events import Placement
from plimsoll_cli.demo.servers import EmbeddedServer
from tests.placer.arrivals import bus, eventually, publish, report
from tests.placer.core.worlds import gpu
from tests.placer.kube.objects import MEMORY
from tests.placer.placers import LEASE, Placer, Placers, free_lease, holder, placers
from tests.servers.apiserver import ApiServer
from tests.servers.objects import create_node, create_pod, get_pod, pod_manifest
from tests.servers.waiting import PATIENCE_S, until, until_true


@dataclass(frozen=True, slots=True)
class Pair:
    """Two placers and their surroundings.

    Attributes:
        leader: the placer that got the lease first.
        follower: the other one, which is ready.
    """

    api: ApiServer
    namespace: str
    jetstream: JetStreamContext
    leader: Placer
    follower: Placer

    async def node(self, name: str) -> None:
        """Add a node with one GPU of 24 GiB."""
        await create_node(self.api, name)
        await publish(self.jetstream, report(name))

    async def pod(self, name: str, memory: str = "1Gi") -> None:
        """Create a pod."""
        await create_pod(self.api, self.namespace, pod_manifest(name, {MEMORY: memory}))

    async def is_bound(self, name: str) -> bool:
        """Whether the pod has a node."""
        return bool((await get_pod(self.api, self.namespace, name))["spec"].get("nodeName"))

    async def told_placed(self) -> list[str]:
        """The names of the pods with an event `pod.placed` on the bus, sorted."""
        config = ConsumerConfig(ack_policy=AckPolicy.NONE, inactive_threshold=60)
        events = await self.jetstream.pull_subscribe(pod_subject("placed"), stream=STREAM, config=config)
        bodies: list[bytes] = []
        while (await events.consumer_info()).num_pending:
            bodies += [message.data for message in await events.fetch(100, timeout=PATIENCE_S)]
        await events.unsubscribe()
        told = [msgspec.json.decode(decode_event(body).data, type=Placement) for body in bodies]
        return sorted(one.name for one in told if one.namespace == self.namespace)

    async def until_bound(self, name: str) -> None:
        """Wait until the pod has a node, and a placer has logged that."""
        await until(lambda: self.is_bound(name))
        await until_true(lambda: name in self.leader.placed() + self.follower.placed())


@pytest.fixture
async def started(
    tmp_path: Path, nats: EmbeddedServer, valkey: EmbeddedServer, apiserver: ApiServer
) -> AsyncIterator[Placers]:
    """Starts placers of one cluster."""
    await free_lease(apiserver)
    settings = {
        "nats_url": nats.url,
        "redis_url": valkey.url,
        "kubeconfig": str(apiserver.kubeconfig()),
        "relocation": "on",
        "relocation_after_s": "1",
    }
    async with placers(tmp_path, **settings) as running:
        yield running


@pytest.fixture
async def pair(
    nats: EmbeddedServer, apiserver: ApiServer, namespace: str, started: Placers
) -> AsyncIterator[Pair]:
    """Two placers, of which one leads and one follows, and one node."""
    async with bus(nats) as jetstream:
        leader = await started.start("left")
        await leader.until("lease taken")
        follower = await started.start("right")
        both = Pair(apiserver, namespace, jetstream, leader, follower)
        await both.node("n1")
        await eventually(leader.readiness, (200, "ok\n"))
        await eventually(follower.readiness, (200, "ok\n"))
        yield both


async def test_one_places_and_the_other_goes_on_when_it_is_killed(pair: Pair) -> None:
    """Each pod is placed once, by the placer that leads; after `kill -9` the follower places those that wait."""
    for index in range(6):
        await pair.pod(f"p{index}")
    for index in range(6):
        await pair.until_bound(f"p{index}")
    await until_true(lambda: len(pair.leader.placed()) == 6)  # the line follows the answer to the bind
    assert pair.follower.placed() == []
    assert "plimsoll_placer_leader 1.0" in await pair.leader.metrics()
    assert "plimsoll_placer_leader 0.0" in await pair.follower.metrics()
    pair.leader.process.kill()
    for index in range(6, 12):
        await pair.pod(f"p{index}")
    for index in range(6, 12):
        await pair.until_bound(f"p{index}")
    assert await holder(pair.api) == "right"
    # From nobody to the first, and from the first to the second.
    assert "plimsoll_placer_lease_transitions 2.0" in await pair.follower.metrics()
    await until_true(lambda: len(pair.follower.placed()) == 6)
    counts = Counter(pair.leader.placed() + pair.follower.placed())
    assert counts == {f"p{index}": 1 for index in range(12)}


async def test_a_follower_asks_the_leader_what_it_alone_knows(pair: Pair) -> None:
    """Attempts and the queue are the leader's; once it is gone, the follower says that it does not know them."""
    for number in range(20):  # pods that were, of which a follower's queue once counted each
        await pair.pod(f"p{number}")
        await pair.until_bound(f"p{number}")
    await pair.pod("waits", "30Gi")

    async def is_unschedulable() -> bool:
        standing = (await pair.leader.explained(pair.namespace, "waits")).waiting
        return standing is not None and standing.queue is not None and standing.queue.place == "parked"

    await until(is_unschedulable)
    found = await pair.follower.explained(pair.namespace, "waits")
    assert found.leads
    assert found.waiting is not None
    assert found.waiting.queue is not None
    assert (found.waiting.queue.place, found.waiting.queue.ahead) == ("parked", None)
    assert found.waiting.queue.attempts > 0
    pair.leader.process.kill()
    await pair.leader.process.wait()
    alone = await pair.follower.explained(pair.namespace, "waits")
    assert not alone.leads
    assert alone.waiting is not None
    assert (alone.waiting.queue, alone.waiting.nodes) == (None, 1)
    assert "Insufficient plimsoll.dev/gpu-memory" in alone.waiting.reasons[0].reason


@pytest.mark.slow
async def test_the_next_leader_writes_to_few_of_many_pods_that_wait(pair: Pair) -> None:
    """However many pods wait, the next leader changes only those to which the dead one may have been writing."""
    names = [f"w{index}" for index in range(40)]
    for name in names:
        await pair.pod(name, "30Gi")

    async def are_refused() -> bool:
        pods = [await get_pod(pair.api, pair.namespace, name) for name in names]
        return all(pod["status"].get("conditions") for pod in pods)

    await until(are_refused)
    for _ in range(2):  # a renewal after the last refusal
        before = (await pair.api.get(LEASE))["spec"]["renewTime"]

        async def is_renewed(before: str = before) -> bool:
            return bool((await pair.api.get(LEASE))["spec"]["renewTime"] != before)

        await until(is_renewed)
    pair.leader.process.kill()
    fenced = await pair.follower.until("late writes fenced off")
    await pair.pod("p")
    await pair.until_bound("p")
    pods = [await get_pod(pair.api, pair.namespace, name) for name in names]
    changed = [pod for pod in pods if FENCE in (pod["metadata"].get("annotations") or {})]
    assert len(changed) == fenced.pods <= 4  # one of a kind, and what was tried at that moment


async def test_one_that_ends_amid_binds_gives_the_lease_back_and_tells_of_each_pod(pair: Pair) -> None:
    """After SIGTERM amid binds the follower need not wait, and each pod that was bound has its event on the bus."""
    for name in ("n2", "n3", "n4"):
        await pair.node(name)
    names = [f"p{index}" for index in range(80)]
    making = [asyncio.create_task(pair.pod(name, "64Mi")) for name in names]
    await until_true(lambda: len(pair.leader.placed()) >= 5)
    pair.leader.process.terminate()
    assert await pair.leader.ended() == 0
    assert await holder(pair.api) != "left"
    await asyncio.gather(*making)
    for name in names:
        await until(partial(pair.is_bound, name))
    await until_true(lambda: sorted(pair.leader.placed() + pair.follower.placed()) == sorted(names))
    await eventually(pair.told_placed, sorted(names))


async def test_one_that_stood_still_places_nothing_after_the_other_took_over(pair: Pair) -> None:
    """A stopped leader that goes on finds a pod that it could place, leaves it alone, and ends to start again."""
    await pair.pod("waits", "30Gi")
    await pair.leader.until("not placed")
    pair.leader.process.send_signal(signal.SIGSTOP)
    await eventually(lambda: holder(pair.api), "right")
    await pair.follower.until("not placed")
    pair.follower.process.send_signal(signal.SIGSTOP)
    await create_node(pair.api, "big")
    await publish(pair.jetstream, report("big", gpus=(gpu("GPU-big", usable_gib=40),)))
    pair.leader.process.send_signal(signal.SIGCONT)
    assert await pair.leader.ended() == 1
    assert "was lost to right-" in pair.leader.lines()[-1].problem
    assert not await pair.is_bound("waits")
    pair.follower.process.send_signal(signal.SIGCONT)
    await pair.until_bound("waits")
    await until_true(lambda: pair.follower.placed() == ["waits"])
    assert pair.leader.placed() == []


@pytest.mark.slow
async def test_a_leader_that_stands_still_amid_binds_double_books_nothing(
    nats: EmbeddedServer, apiserver: ApiServer, namespace: str, started: Placers
) -> None:
    """A leader is stopped for 5 s while pods arrive, and the follower takes over. No GPU gets more than it has."""
    nodes = ("n1", "n2", "n3", "n4")
    async with bus(nats) as jetstream:
        leader = await started.start("left", lease_s="3")
        await leader.until("lease taken")
        both = Pair(apiserver, namespace, jetstream, leader, await started.start("right", lease_s="3"))
        for node in nodes:
            await both.node(node)
        await eventually(both.follower.readiness, (200, "ok\n"))
        names = [f"p{index}" for index in range(30)]

        async def create() -> None:
            for name in names:
                await both.pod(name, "7Gi")  # three have room on a GPU
                await asyncio.sleep(0.2)  # pods arrive before, during and after the stop

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(create())
            await until_true(lambda: len(leader.placed()) >= 2)
            leader.process.send_signal(signal.SIGSTOP)
            await asyncio.sleep(5.0)
            leader.process.send_signal(signal.SIGCONT)

        async def places() -> Counter[str]:
            pods = (await apiserver.get(f"/api/v1/namespaces/{namespace}/pods"))["items"]
            if not all(pod["status"].get("conditions") for pod in pods):
                return Counter()  # some are neither bound nor refused
            return Counter(pod["spec"]["nodeName"] for pod in pods if pod["spec"].get("nodeName"))

        await eventually(places, Counter(dict.fromkeys(nodes, 3)))
        placed = Counter(leader.placed() + both.follower.placed())
        assert max(placed.values()) == 1


@pytest.mark.slow
async def test_placers_with_two_leases_notice_each_other(
    nats: EmbeddedServer, apiserver: ApiServer, namespace: str, started: Placers
) -> None:
    """Two placers that were given different Leases both lead, and one of them soon says so, in log and metric."""
    await free_lease(apiserver, "default")
    async with bus(nats) as jetstream:
        left, right = await started.start("left"), await started.start("right", lease_namespace="default")
        both = Pair(apiserver, namespace, jetstream, left, right)
        for node in ("n1", "n2", "n3", "n4"):
            await both.node(node)
        for placer in (left, right):
            await placer.until("lease taken")
            await eventually(placer.readiness, (200, "ok\n"))
        for index in range(40):
            await both.pod(f"p{index}", "64Mi")

        def noticed() -> bool:
            event = "another placer bound a pod that waited here, so both may promise the same room"
            return any(line.event == event for placer in (left, right) for line in placer.lines())

        await until_true(noticed)
        metrics = await left.metrics() + await right.metrics()
        assert metrics.count("plimsoll_placer_rival_binds_total 0.0") < 2


@pytest.mark.slow
async def test_one_that_cannot_read_reports_leaves_the_lease_to_others(
    deaf_nats: EmbeddedServer, apiserver: ApiServer, started: Placers
) -> None:
    """A placer that came first and cannot decide does not lead; one that came later and can decide does."""
    deaf = await started.start("deaf", nats_url=deaf_nats.url)

    async def reads_cluster() -> bool:
        status, text = await deaf.readiness()
        return status == 503 and text == "the last reports are still being read\n"

    await until(reads_cluster)
    await started.start("hearing")
    await eventually(lambda: holder(apiserver), "hearing")
    assert [line.event for line in deaf.lines()].count("lease taken") == 0


async def test_the_next_leader_keeps_the_room_of_a_preemption(pair: Pair) -> None:
    """A leader is killed while its victim ends. The next one gives the room to the preemptor, and to no lower pod."""
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    await pair.api.must("POST", classes, {"metadata": {"name": "test-below"}, "value": -10})

    async def ask(name: str, memory: str, priority: str) -> None:
        pod = pod_manifest(name, {MEMORY: memory})
        pod["spec"] |= {"priorityClassName": priority, "terminationGracePeriodSeconds": 600}
        await create_pod(pair.api, pair.namespace, pod)

    async def is_ending() -> bool:
        return "deletionTimestamp" in (await get_pod(pair.api, pair.namespace, "victim"))["metadata"]

    try:
        await ask("victim", "20Gi", "test-below")
        await pair.until_bound("victim")
        await ask("urgent", "20Gi", "system-cluster-critical")
        await until(is_ending)
        pair.leader.process.send_signal(signal.SIGKILL)
        await pair.follower.until("lease taken")
        await pair.pod("thief", "5Gi")
        path = f"/api/v1/namespaces/{pair.namespace}/pods/victim?gracePeriodSeconds=0"
        await pair.api.must("DELETE", path)
        await pair.until_bound("urgent")
        assert not await pair.is_bound("thief")
        assert pair.follower.placed() == ["urgent"]
    finally:
        await pair.api.must("DELETE", f"{classes}/test-below")


@pytest.mark.slow
async def test_the_next_leader_keeps_the_rooms_of_a_relocation(pair: Pair) -> None:
    """A leader is killed once the moved pod is evicted. A later pod gets neither its room nor its replacement's.

    No controller runs here: the test makes the replacement once the moved pod has ended, as for a StatefulSet.
    """
    await pair.node("n2")
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "web", "controller": True}

    async def ask(name: str, memory: str, node: str | None = None, *, owned: bool = False) -> None:
        pod = pod_manifest(name, {MEMORY: memory}, annotations={RELOCATION_COST: "1"} if owned else {})
        pod["metadata"]["ownerReferences"] = [owner] if owned else []
        pod["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node} if node else {}
        pod["spec"]["terminationGracePeriodSeconds"] = 600
        await create_pod(pair.api, pair.namespace, pod)

    await ask("stone", "12Gi", "n2")
    await pair.until_bound("stone")
    await ask("web-0", "11Gi", owned=True)
    await pair.until_bound("web-0")
    path = f"/api/v1/namespaces/{pair.namespace}/pods/web-0"
    status = {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}
    await pair.api.must("PATCH", f"{path}/status", {"status": status})
    await ask("wide", "20Gi")

    async def is_ending() -> bool:
        return "deletionTimestamp" in (await get_pod(pair.api, pair.namespace, "web-0"))["metadata"]

    await until(is_ending)
    pair.leader.process.send_signal(signal.SIGKILL)
    await ask("late", "10Gi")
    await pair.api.must("DELETE", f"{path}?gracePeriodSeconds=0")
    await pair.follower.until("lease taken")
    await pair.until_bound("wide")
    await ask("web-0", "11Gi", owned=True)
    await pair.until_bound("web-0")
    assert not await pair.is_bound("late")
    places = [
        (await get_pod(pair.api, pair.namespace, name))["spec"]["nodeName"] for name in ("wide", "web-0")
    ]
    assert places == ["n1", "n2"]
