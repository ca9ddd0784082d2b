"""Conditions and events are exact and written once, and never overwrite a newer state of the pod."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import msgspec
import pytest

from placer.scheduler.queue.queueing_hints import EVERYTHING
from placer.scheduler.reporting.pod_events import NOTE_BYTES, PodNews, cut
from placer.scheduler.reporting.record import NEWS_OF_A_POD, WRITERS, Recorder
from plimsoll.kube.client import connect
from plimsoll.kube.models import Pod
from plimsoll.kube.transport import Body, PatchKind, RefusedError, TransientError, Transport
from plimsoll.part.backoff import Pauses
from plimsoll_cli.demo.servers import EmbeddedServer
from tests.placer.kube.lossy import LossyBinds, held, lose_answer, lose_request
from tests.placer.kube.objects import MEMORY
from tests.placer.kube.world import World, condition, read_pod, scheduler
from tests.servers.apiserver import ApiServer, Object
from tests.servers.objects import create_node, create_pod, get_pod, pod_manifest
from tests.servers.waiting import until, until_true


@contextlib.asynccontextmanager
async def recorder(
    api: ApiServer, wrap: Callable[[Transport], Transport] = lambda transport: transport
) -> AsyncIterator[Recorder]:
    """A running recorder that writes every repeat of an event."""
    async with connect(api.kubeconfig()) as client:
        running = Recorder(wrap(client), "test", series_every_s=0.0)
        task = asyncio.create_task(running.run())
        try:
            yield running
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


def refusal(pod: Pod, note: str = "0/0 nodes are available.") -> PodNews:
    """News that a pod was not placed."""
    return PodNews(pod, "FailedScheduling", note, "Unschedulable")


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
        assert len(world.published.refused) == 1


async def tried_again(world: World) -> None:
    """Bring the unschedulable pod back, as after five minutes, and wait for the next decision and its explanation."""
    await until(lambda: is_unschedulable(world))
    before = decisions(world)
    world.parts.core.cluster_events.move_on(EVERYTHING)

    async def look() -> bool:
        return decisions(world) > before and await is_unschedulable(world)

    await until(look)


async def is_unschedulable(world: World) -> bool:
    """Whether the only pod waits for a change: a change before that is read by the explanation itself."""
    return len(world.parts.core.queue.unschedulable) > 0


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


@pytest.mark.parametrize("name", ["p", ("a" * 61 + ".") * 4 + "longz"])
async def test_endless_note_is_accepted(apiserver: ApiServer, namespace: str, name: str) -> None:
    """A note past the API's limit is cut between two characters; so is the longest name, with its ending."""
    pod = read_pod(await create_pod(apiserver, namespace, pod_manifest(name)))
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


async def test_endless_condition_is_cut(apiserver: ApiServer, namespace: str) -> None:
    """A condition's message has the length of an event's note at most, though the API would take far more."""
    pod = read_pod(await create_pod(apiserver, namespace, pod_manifest("p")))
    async with recorder(apiserver) as running:
        running.record(refusal(pod, "x" * 200_000))
        assert await until(lambda: events(apiserver, namespace))
    message = condition(await get_pod(apiserver, namespace, "p"))["message"]
    assert message == "x" * (NOTE_BYTES - 3) + "..."


async def test_newest_refusal_stands_in_the_condition_though_the_pod_was_read_before(
    apiserver: ApiServer, namespace: str
) -> None:
    """Refusals recorded with an outdated pod are written all the same, and the condition has the newest."""
    pod = read_pod(await create_pod(apiserver, namespace, pod_manifest("p")))
    async with recorder(apiserver) as running:
        for note in ("first", "second", "first"):
            running.record(refusal(pod, note))

            async def shows(note: str = note) -> bool:
                return condition(await get_pod(apiserver, namespace, "p")).get("message") == note

            await until(shows)


async def test_news_of_many_pods_is_written_at_once_and_none_is_dropped(
    apiserver: ApiServer, namespace: str
) -> None:
    """Each of 300 pods gets its events, the refusal before the success, though all news comes in one moment."""
    names = [f"p{index}" for index in range(300)]
    pods = [msgspec.json.decode(_manifest(name, namespace), type=Pod) for name in names]
    async with recorder(apiserver) as running:
        for pod in pods:
            running.record(refusal(pod))
        for pod in pods:
            running.record(PodNews(pod, "Scheduled", "assigned", None))

        async def all_there() -> bool:
            return len(await events(apiserver, namespace)) == 600

        await until(all_there)
        by_pod: dict[str, list[tuple[int, str]]] = {name: [] for name in names}
        for event in await events(apiserver, namespace):
            version = int(event["metadata"]["resourceVersion"])
            by_pod[event["regarding"]["name"]].append((version, event["reason"]))
        assert {tuple(reason for _, reason in sorted(found)) for found in by_pod.values()} == {
            ("FailedScheduling", "Scheduled")
        }
        assert running.metrics.news.waiting._value.get() == 0


async def test_refusals_that_wait_are_replaced_and_a_success_never_is(
    apiserver: ApiServer, namespace: str
) -> None:
    """While the API server is away, a pod keeps its newest refusals and each success, and all are written then."""
    pod = msgspec.json.decode(_manifest("p", namespace), type=Pod)
    away, back = asyncio.Event(), asyncio.Event()
    writes = LossyBinds()
    writes.event_faults.extend([lose_request, lose_request, held(away, back), lose_answer])
    async with recorder(apiserver, wrap=writes.around) as running:
        running.record(PodNews(pod, "Scheduled", "assigned", None))
        for number in range(50):
            running.record(refusal(pod, f"reason {number}"))
        await until_true(away.is_set)
        back.set()

        async def all_there() -> bool:
            return len(await events(apiserver, namespace)) == 1 + NEWS_OF_A_POD

        await until(all_there)
        await until_true(lambda: running.metrics.news.waiting._value.get() == 0)
        found = {event["note"] for event in await events(apiserver, namespace)}
        assert found == {"assigned", *(f"reason {number}" for number in range(50 - NEWS_OF_A_POD, 50))}
        assert running.metrics.news.coalesced._value.get() == 50 - NEWS_OF_A_POD


async def test_while_pods_are_bound_news_is_written_by_one_writer(
    apiserver: ApiServer, namespace: str
) -> None:
    """The news of 20 pods is written one after another, in the order in which it came."""
    pods = [msgspec.json.decode(_manifest(f"p{index:02d}", namespace), type=Pod) for index in range(20)]
    async with recorder(apiserver) as running:
        with running.put_off():
            for pod in pods:
                running.record(PodNews(pod, "Scheduled", "assigned", None))
            found = await _events_of(apiserver, namespace, len(pods))
    found.sort(key=lambda event: int(event["metadata"]["resourceVersion"]))
    assert [event["regarding"]["name"] for event in found] == [pod.metadata.name for pod in pods]


@pytest.mark.parametrize("is_over", [True, False], ids=["after the last bind", "with many that wait"])
async def test_news_does_not_wait_for_binds_for_ever(
    apiserver: ApiServer, namespace: str, *, is_over: bool
) -> None:
    """Once no pod is being bound, or very many have news, all writers write, though one of them stands still."""
    pods = [msgspec.json.decode(_manifest(f"p{index:02d}", namespace), type=Pod) for index in range(20)]
    away, back = asyncio.Event(), asyncio.Event()
    writes = LossyBinds()
    writes.event_faults.append(held(away, back))
    async with recorder(apiserver, wrap=writes.around) as running:
        running.most_put_off = 1000 if is_over else 15
        with contextlib.ExitStack() as binds:
            binds.enter_context(running.put_off())
            running.record(PodNews(pods[0], "Scheduled", "assigned", None))
            await until_true(away.is_set)
            for pod in pods[1:]:
                running.record(PodNews(pod, "Scheduled", "assigned", None))
            if is_over:
                binds.close()
            await _events_of(apiserver, namespace, 1 if not is_over else len(pods) - 1)
        back.set()
        await _events_of(apiserver, namespace, len(pods))


async def _events_of(api: ApiServer, namespace: str, number: int) -> list[Object]:
    """The events of a namespace, once there are this many."""

    async def look() -> list[Object]:
        found = await events(api, namespace)
        return found if len(found) >= number else []

    found: list[Object] = await until(look)
    return found


def _manifest(name: str, namespace: str) -> bytes:
    """A pod that does not exist: its events can be written all the same."""
    return msgspec.json.encode({"metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}"}})


def test_short_note_is_left_alone() -> None:
    """Only a note past the limit is cut, to exactly the limit."""
    assert cut("x" * NOTE_BYTES) == "x" * NOTE_BYTES
    assert len(cut("x" * (NOTE_BYTES + 1))) == NOTE_BYTES


class Forbidding(LossyBinds):
    """Forbids the first patches, as an API server does that has not read its roles yet."""

    left = 2

    async def patch(self, path: str, body: Body, kind: PatchKind) -> bytes:
        """See `Transport`."""
        if self.left > 0:
            self.left -= 1
            raise RefusedError("403 Forbidden: not yet", 403, "Forbidden")
        return await super().patch(path, body, kind)


async def test_condition_is_written_once_the_server_has_read_its_roles(
    apiserver: ApiServer, namespace: str
) -> None:
    """A condition that the API server forbids for a moment is written later, and there is one event."""
    pod = read_pod(await create_pod(apiserver, namespace, pod_manifest("p")))
    async with recorder(apiserver, Forbidding().around) as running:
        running.record(refusal(pod))

        async def look() -> bool:
            return bool(condition(await get_pod(apiserver, namespace, "p")))

        await until(look)
        (event,) = await until(lambda: events(apiserver, namespace))
    assert "series" not in event


class ForbiddingOne(LossyBinds):
    """Forbids all new events of one pod, as in a namespace that is being deleted."""

    async def post(self, path: str, body: Body) -> bytes:
        """See `Transport`."""
        if str(body["metadata"]).startswith("{'name': 'forbidden"):
            raise RefusedError("403 Forbidden: being terminated", 403, "Forbidden")
        return await super().post(path, body)


async def test_forbidden_news_of_some_pods_delay_no_others(
    apiserver: ApiServer, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many pods' events are forbidden, no writer waits for them; the event of another pod is written."""
    monkeypatch.setattr("placer.scheduler.reporting.record.Pauses", EndlessPauses)
    forbidden = [
        read_pod(await create_pod(apiserver, namespace, pod_manifest(f"forbidden{number}")))
        for number in range(2 * WRITERS)
    ]
    other = read_pod(await create_pod(apiserver, namespace, pod_manifest("other")))
    async with recorder(apiserver, ForbiddingOne().around) as running:
        for pod in (*forbidden, other):
            running.record(refusal(pod))
        (event,) = await until(lambda: events(apiserver, namespace))
    assert event["regarding"]["name"] == "other"


class Failing(LossyBinds):
    """An API server that answers each event with an error of its own, or is away."""

    def __init__(self, status: int | None) -> None:
        super().__init__()
        self.status = status
        self.tries = 0

    async def post(self, path: str, body: Body) -> bytes:
        """See `Transport`."""
        del path, body
        self.tries += 1
        raise TransientError("failed calling webhook", self.status)


@pytest.mark.parametrize("status", [500, None])
async def test_news_that_fails_for_ever_is_dropped_and_news_for_an_absent_server_waits(
    apiserver: ApiServer, namespace: str, monkeypatch: pytest.MonkeyPatch, status: int | None
) -> None:
    """News that only ever got errors as answers is counted as dropped. News that got no answer is written on."""
    monkeypatch.setattr("placer.scheduler.reporting.record.ERRORS_S", 0.2)
    monkeypatch.setattr("placer.scheduler.reporting.record.Pauses", lambda: Pauses(0.05, 0.05))
    pod = read_pod(await create_pod(apiserver, namespace, pod_manifest("p")))
    failing = Failing(status)
    async with recorder(apiserver, failing.around) as running:
        running.record(refusal(pod))
        dropped = running.metrics.news.dropped._value
        await until_true(lambda: dropped.get() if status else failing.tries >= 20)
        if status:
            assert failing.tries >= 2
            assert running._waiting == {}
        else:
            assert dropped.get() == 0


class EndlessPauses:
    """Pauses after which nothing would be written any more in the time of a test."""

    def next_s(self) -> float:
        """An hour."""
        return 3600.0

    def reset(self) -> None:
        """There is nothing to begin anew."""
