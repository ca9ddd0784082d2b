"""Conditions and events are exact and written once, and never overwrite a newer state of the pod."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from placer.kube.hints import EVERYTHING
from placer.kube.record import NOTE_BYTES, News, Recorder, cut
from plimsoll.cli.demo.servers import EmbeddedServer
from plimsoll.kube.client import connect
from plimsoll.kube.models import Pod
from tests.placer.kube.lossy import LossyBinds
from tests.placer.kube.world import MEMORY, World, condition, read_pod, scheduler
from tests.servers.apiserver import ApiServer, Object
from tests.servers.objects import create_node, create_pod, get_pod, pod_manifest
from tests.servers.waiting import until


@contextlib.asynccontextmanager
async def recorder(api: ApiServer, series_every_s: float = 0.0) -> AsyncIterator[Recorder]:
    """A running recorder that writes every repeat of an event."""
    async with connect(api.kubeconfig()) as client:
        running = Recorder(client, "test", series_every_s=series_every_s)
        task = asyncio.create_task(running.run())
        try:
            yield running
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


def refusal(pod: Pod, note: str = "0/0 nodes are available.") -> News:
    """News that a pod was not placed."""
    return News(pod, "FailedScheduling", note, "Unschedulable")


async def events(api: ApiServer, namespace: str) -> list[Object]:
    """All events of a namespace."""
    items: list[Object] = (await api.get(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"))["items"]
    return items


async def test_same_refusal_changes_the_pod_once(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """A second attempt with the same outcome writes nothing to the pod and publishes nothing on the bus."""
    writes = LossyBinds()
    async with scheduler(apiserver, valkey, namespace, wrap=writes.around) as world:
        await create_node(apiserver, "n1")
        await world.report("n1", 1)
        await create_pod(apiserver, namespace, pod_manifest("p", {MEMORY: "4Gi"}))
        pod = await world.until_refused("p", "1 Insufficient plimsoll.dev/gpu-memory on one GPU")
        await world.events("p", "FailedScheduling")
        for _ in range(3):
            await tried_again(world)
        assert (await world.pod("p"))["metadata"]["resourceVersion"] == pod["metadata"]["resourceVersion"]
        assert len(await world.events("p", "FailedScheduling")) == 1
        assert writes.patched == [f"/api/v1/namespaces/{namespace}/pods/p/status"]
        assert len(world.told.refused) == 1


async def tried_again(world: World) -> None:
    """Wake every parked pod, as after five minutes, and wait for the next decision."""
    before = decisions(world)
    world.front_end._wake(EVERYTHING)

    async def look() -> bool:
        return decisions(world) > before

    await until(look)


def decisions(world: World) -> float:
    """The number of decisions that found no node."""
    value = world.metrics.registry.get_sample_value(
        "plimsoll_placer_decisions_total", {"outcome": "unplaceable"}
    )
    return value or 0.0


async def test_late_refusal_does_not_overwrite_a_bind(apiserver: ApiServer, namespace: str) -> None:
    """A refusal that arrives after a bind leaves `PodScheduled: True` alone."""
    await create_node(apiserver, "n1")
    before = read_pod(await create_pod(apiserver, namespace, pod_manifest("p")))
    bind = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n1"}}
    await apiserver.must("POST", f"/api/v1/namespaces/{namespace}/pods/p/binding", bind)
    async with recorder(apiserver) as running:
        running.record(refusal(before))
        await until(lambda: events(apiserver, namespace))  # the event follows the condition
    assert condition(await get_pod(apiserver, namespace, "p"))["status"] == "True"


async def test_repeats_are_one_event_that_counts(apiserver: ApiServer, namespace: str) -> None:
    """Repeats of a pod's event become one event with a series; a different event is an event of its own."""
    pod = read_pod(await create_pod(apiserver, namespace, pod_manifest("p")))
    async with recorder(apiserver) as running:
        for _ in range(3):
            running.record(refusal(pod))
        running.record(refusal(pod, "another reason"))

        async def look() -> list[Object]:
            found = await events(apiserver, namespace)
            return found if len(found) == 2 else []

        by_note = {event["note"]: event for event in await until(look)}
    assert by_note["0/0 nodes are available."]["series"]["count"] == 3
    assert "series" not in by_note["another reason"]


async def test_event_that_expired_is_written_anew(apiserver: ApiServer, namespace: str) -> None:
    """An event that the server dropped is written anew when it repeats."""
    pod = read_pod(await create_pod(apiserver, namespace, pod_manifest("p")))
    async with recorder(apiserver) as running:
        running.record(refusal(pod))
        (first,) = await until(lambda: events(apiserver, namespace))
        path = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events/{first['metadata']['name']}"
        await apiserver.must("DELETE", path)
        running.record(refusal(pod))
        (second,) = await until(lambda: events(apiserver, namespace))
    assert first["metadata"]["name"] != second["metadata"]["name"]


async def test_endless_note_is_accepted(apiserver: ApiServer, namespace: str) -> None:
    """A note past the API's limit is cut between two characters, and the server accepts it."""
    pod = read_pod(await create_pod(apiserver, namespace, pod_manifest("p")))
    async with recorder(apiserver) as running:
        running.record(refusal(pod, "ä" * 2000))
        (event,) = await until(lambda: events(apiserver, namespace))
    assert event["note"].startswith("ää")
    assert event["note"].endswith("ä...")


async def test_news_of_a_pod_that_is_gone_stops_nothing(apiserver: ApiServer, namespace: str) -> None:
    """The recorder goes on with the next pod when a pod was deleted meanwhile."""
    gone = read_pod(await create_pod(apiserver, namespace, pod_manifest("gone")))
    await apiserver.must("DELETE", f"/api/v1/namespaces/{namespace}/pods/gone?gracePeriodSeconds=0")
    here = read_pod(await create_pod(apiserver, namespace, pod_manifest("here")))
    async with recorder(apiserver) as running:
        running.record(refusal(gone))
        running.record(refusal(here, "told"))

        async def look() -> bool:
            return condition(await get_pod(apiserver, namespace, "here")).get("message") == "told"

        await until(look)


def test_short_note_is_left_alone() -> None:
    """Only a note past the limit is cut, to exactly the limit."""
    assert cut("x" * NOTE_BYTES) == "x" * NOTE_BYTES
    assert len(cut("x" * (NOTE_BYTES + 1))) == NOTE_BYTES
