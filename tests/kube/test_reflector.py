"""The reflector keeps a faithful image through every fault that broke watches of other clients."""

import asyncio
import contextlib
import dataclasses
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.kube.client import connect
from plimsoll.kube.models import Pod
from plimsoll.kube.reflector import Reflector, Timing
from tests.kube.faults import Answer, FaultyServer, faulty_server, pod
from tests.kube.reflected import QUICK, Image, reflecting
from tests.logs import capture_logs
from tests.servers.apiserver import ApiServer
from tests.servers.objects import create_pod, pod_manifest
from tests.servers.waiting import until_true


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[FaultyServer]:
    """An API server that misbehaves by script."""
    async with faulty_server(tmp_path) as running:
        yield running


async def test_list_is_read_in_pages_and_the_watch_begins_where_it_ended(server: FaultyServer) -> None:
    """All pages form one list; the watch requests bookmarks, a bounded time, and the list's version."""
    server.pods = {name: pod(name, 1) for name in "abc"}
    server.page_size, server.version = 2, 7
    async with reflecting(server.kubeconfig) as image:
        await image.until(lambda emitted: emitted == ["+a", "+b", "+c", "synced"])
        await until_true(lambda: server.watches)
    assert [query.get("continue") for query in server.lists] == [None, "2"]
    assert {query["limit"] for query in server.lists} == {"500"}
    query = server.watches[0]
    assert (query["resourceVersion"], query["allowWatchBookmarks"]) == ("7", "true")
    assert 240 <= int(query["timeoutSeconds"]) <= 480


async def test_events_become_changes_and_move_the_version_on(server: FaultyServer) -> None:
    """Added, modified and deleted are emitted in order, and the next watch begins after the last of them."""

    async def play(_: web.Request, answer: Answer) -> None:
        await answer.begin()
        await answer.event("ADDED", pod("b", 2))
        await answer.event("MODIFIED", pod("a", 3))
        await answer.event("DELETED", pod("b", 4))
        await answer.event("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": "9"}})

    server.pods = {"a": pod("a", 1)}
    server.acts.append(play)
    async with reflecting(server.kubeconfig) as image:
        await image.until(lambda emitted: emitted == ["+a", "synced", "+b", "~a", "-b"])
        await until_true(lambda: len(server.watches) > 1)
    assert server.watches[1]["resourceVersion"] == "9"
    assert len(server.lists) == 1


async def test_gone_lists_again_and_emits_the_deletions_meanwhile(server: FaultyServer) -> None:
    """After 410 the new list is compared with the known pods: gone pods are deleted, namesakes replaced."""

    async def expire(_: web.Request, answer: Answer) -> None:
        server.pods = {"b": pod("b", 1), "c": pod("c", 8, uid="uid-c2"), "d": pod("d", 8)}
        await answer.begin()
        status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
        await answer.event("ERROR", status)

    server.pods = {name: pod(name, 1) for name in "abc"}
    server.acts.append(expire)
    async with reflecting(server.kubeconfig) as image:
        await image.until(lambda emitted: emitted.count("synced") == 2)
    assert set(image.emitted[4:-1]) == {"-a", "-c", "+c2", "+d"}
    assert image.emitted.index("-c") < image.emitted.index("+c2")
    assert set(image.pods) == {"uid-b", "uid-c2", "uid-d"}


async def test_gone_before_the_stream_begins_lists_again(server: FaultyServer) -> None:
    """A watch answered with HTTP status 410 leads to a new list, not to the same watch again."""

    async def refuse(_: web.Request, answer: Answer) -> None:
        answer.stream.set_status(410)
        await answer.begin()

    server.acts.append(refuse)
    async with reflecting(server.kubeconfig) as image:
        await image.until(lambda emitted: emitted == ["synced", "synced"])
    assert len(server.lists) == 2


async def test_dropped_connection_is_resumed_without_listing_again(server: FaultyServer) -> None:
    """A connection cut in the middle of an event loses nothing: the watch goes on from the last whole event."""

    async def cut(_: web.Request, answer: Answer) -> None:
        await answer.begin()
        await answer.event("ADDED", pod("a", 5))
        await answer.raw(b'{"type":"ADDED","object":{"meta')
        await asyncio.sleep(0.05)
        answer.abort()

    async def go_on(_: web.Request, answer: Answer) -> None:
        await answer.begin()
        await answer.event("ADDED", pod("b", 6))
        await asyncio.sleep(30)

    server.acts.extend([cut, go_on])
    async with reflecting(server.kubeconfig) as image:
        await image.until(lambda emitted: emitted == ["synced", "+a", "+b"])
    assert [query["resourceVersion"] for query in server.watches] == ["1", "5"]
    assert len(server.lists) == 1


async def test_silent_connection_is_given_up(server: FaultyServer) -> None:
    """A half-open connection without any bytes is given up after the read deadline."""

    async def nothing(_: web.Request, answer: Answer) -> None:
        await answer.begin()
        await asyncio.sleep(60)

    server.acts.append(nothing)
    async with reflecting(server.kubeconfig, dataclasses.replace(QUICK, read_deadline_s=0.5)):
        await until_true(lambda: len(server.watches) > 1)


@pytest.mark.parametrize(
    "garbage",
    [
        b"<html><body>503 Service Unavailable</body></html>\n",
        b'{"type":"ADDED"}\n',
        b'{"type":"SURPRISE","object":{"metadata":{}}}\n',
        b'{"type":"ADDED","object":"text"}\n',
        b"\xff\xfe\x00\n",
        b"\n",
    ],
)
async def test_what_is_no_event_is_never_taken_for_one(server: FaultyServer, garbage: bytes) -> None:
    """Lines that are no watch events change nothing, and the watch begins again at its last version."""

    async def play(_: web.Request, answer: Answer) -> None:
        await answer.begin()
        await answer.raw(garbage)
        await answer.event("ADDED", pod("never", 5))
        await asyncio.sleep(30)

    server.acts.append(play)
    async with reflecting(server.kubeconfig) as image:
        await until_true(lambda: len(server.watches) > 1)
        assert image.emitted == ["synced"]
    assert server.watches[1]["resourceVersion"] == "1"


async def test_server_that_ends_every_watch_at_once_is_asked_ever_more_slowly(server: FaultyServer) -> None:
    """Watches that end cleanly at once count as failures, so the reflector backs off."""

    async def end(_: web.Request, answer: Answer) -> None:
        await answer.begin()

    server.acts.extend([end] * 1000)
    timing = Timing(first_pause_s=0.05, longest_pause_s=30, healthy_after_s=30)
    async with reflecting(server.kubeconfig, timing):
        await until_true(lambda: len(server.watches) > 1)
        await asyncio.sleep(2)  # without backoff this fake gets some 1000 requests a second
    assert len(server.watches) <= 40


async def test_server_that_knows_no_version_is_listed_ever_more_slowly(server: FaultyServer) -> None:
    """A 410 for the version of a list that was just read counts as a failure, so the reflector backs off."""

    async def refuse(_: web.Request, answer: Answer) -> None:
        answer.stream.set_status(410)
        await answer.begin()

    server.acts.extend([refuse] * 10_000)
    timing = Timing(first_pause_s=0.05, longest_pause_s=30, healthy_after_s=30)
    async with reflecting(server.kubeconfig, timing):
        await until_true(lambda: len(server.lists) > 1)
        await asyncio.sleep(2)  # without backoff this fake gets some 1000 requests a second
    assert len(server.lists) <= 40


async def test_server_in_trouble_is_outlived_and_its_retry_after_is_honoured(server: FaultyServer) -> None:
    """The reflector survives HTML from a proxy, a 429 and an answer that is no list, and pauses as long as asked."""
    server.list_faults.extend(
        [
            web.Response(status=503, text="<html>Service Unavailable</html>", content_type="text/html"),
            web.Response(status=429, headers={"Retry-After": "1"}, text="slow down"),
            web.Response(text="<html>Welcome to the Wi-Fi</html>", content_type="text/html"),
            web.Response(status=403, text=json.dumps({"kind": "Status", "reason": "Forbidden"})),
        ]
    )
    server.pods = {"a": pod("a", 1)}
    async with reflecting(server.kubeconfig) as image:
        await image.until(lambda emitted: emitted == ["+a", "synced"])
    times = [at for query, at in server.asked if "watch" not in query]
    assert len(times) == 5
    assert times[2] - times[1] >= 1


async def test_broken_object_is_logged_by_name_and_stops_nothing(server: FaultyServer) -> None:
    """An unreadable pod is named in the log, its known form stays, and the others are emitted."""

    async def play(_: web.Request, answer: Answer) -> None:
        await answer.begin()
        await answer.event("MODIFIED", pod("a", 2, hostNetwork="perhaps"))
        await answer.event("ADDED", pod("c", 3))
        await answer.event("DELETED", pod("a", 4, hostNetwork="perhaps"))
        await asyncio.sleep(30)

    server.pods = {"bad": pod("bad", 1, priority="high"), "a": pod("a", 1)}
    server.acts.append(play)
    with capture_logs() as logs:
        async with reflecting(server.kubeconfig) as image:
            await image.until(lambda emitted: emitted == ["+a", "synced", "+c", "-a"])
    named = [line["name"] for line in logs if line["event"] == "object cannot be read"]
    assert named == ["bad", "a"]


async def test_known_object_that_a_new_list_spoils_is_not_taken_for_deleted(server: FaultyServer) -> None:
    """A pod that exists and can no longer be read keeps its known form through a new list."""

    async def expire(_: web.Request, answer: Answer) -> None:
        server.pods = {"a": pod("a", 8, hostNetwork="perhaps")}
        answer.stream.set_status(410)
        await answer.begin()

    server.pods = {"a": pod("a", 1)}
    server.acts.append(expire)
    async with reflecting(server.kubeconfig) as image:
        await image.until(lambda emitted: emitted.count("synced") == 2)
    assert image.emitted == ["+a", "synced", "synced"]


@given(st.integers(0, 2000))
def test_pauses_are_jittered_and_bounded(attempts: int) -> None:
    """A pause is a random part of a bound that doubles up to a maximum, and is short again after a success."""
    pauses = Timing(first_pause_s=1, longest_pause_s=30).pauses()
    for number in range(attempts):
        assert 0.5 <= pauses.next_s() <= min(2.0 ** min(number, 5), 30)
    pauses.reset()
    assert pauses.next_s() <= 1


@given(st.lists(st.dictionaries(st.sampled_from("abc"), st.sampled_from(["1", "2"])), min_size=1, max_size=6))
async def test_any_row_of_lists_leaves_the_last_one_as_image(lists: list[dict[str, str]]) -> None:
    """After any changes between two lists, the image equals the last list, and no pod is emitted twice."""
    image = Image()
    scripted = _Lists(
        [{name: pod(name, int(uid), uid=f"{name}{uid}") for name, uid in one.items()} for one in lists]
    )
    reflector = Reflector(scripted, "/api/v1/pods", Pod, image.take)
    for one in lists:
        await reflector._list()
        assert set(image.pods) == {f"{name}{uid}" for name, uid in one.items()}


async def test_real_server_is_followed_through_pages_changes_and_deletion(
    apiserver: ApiServer, namespace: str
) -> None:
    """On a real API server existing pods are listed, changes are emitted, and deleted pods go."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    await create_pod(apiserver, namespace, pod_manifest("old"))
    async with reflecting(apiserver.kubeconfig(), Timing(), path) as image:

        def names() -> list[str]:
            return sorted(one.metadata.name for one in image.pods.values())

        await image.until(lambda emitted: "synced" in emitted)
        assert names() == ["old"]
        await create_pod(apiserver, namespace, pod_manifest("new"))
        await until_true(lambda: names() == ["new", "old"])
        await apiserver.must("PATCH", f"{path}/new", {"metadata": {"labels": {"a": "b"}}})
        await until_true(lambda: any((one.metadata.labels or {}).get("a") for one in image.pods.values()))
        await apiserver.must("DELETE", f"{path}/old?gracePeriodSeconds=0")
        await until_true(lambda: names() == ["new"])


@dataclass(slots=True)
class _Lists:
    """A transport that only lists, as the property needs hundreds of lists and no network."""

    lists: list[dict[str, dict[str, object]]]

    async def get(self, path: str, query: object = ()) -> bytes:  # noqa: ARG002 - one interface
        """Return the next list."""
        return json.dumps(
            {"metadata": {"resourceVersion": "1"}, "items": list(self.lists.pop(0).values())}
        ).encode()

    async def post(self, path: str, body: object) -> bytes:
        """Never called."""
        raise AssertionError((path, body))

    async def patch(self, path: str, body: object, kind: object) -> bytes:
        """Never called."""
        raise AssertionError((path, body, kind))

    async def delete(self, path: str, body: object) -> bytes:
        """Never called."""
        raise AssertionError((path, body))

    def stream(
        self, path: str, query: object, read_timeout_s: float
    ) -> contextlib.AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Never called."""
        raise AssertionError((path, query, read_timeout_s))


@contextlib.asynccontextmanager
async def catching_up(kubeconfig: Path) -> AsyncIterator[tuple[Image, Reflector[Pod]]]:
    """A running reflector that a test asks to catch up."""
    image = Image()
    async with connect(kubeconfig) as client:
        reflector = Reflector(client, "/api/v1/pods", Pod, image.take, timing=QUICK)
        task = asyncio.create_task(reflector.run())
        try:
            yield image, reflector
        finally:
            task.cancel()
            await asyncio.wait([task])


async def test_catching_up_waits_for_a_watch_that_moves(server: FaultyServer) -> None:
    """Once the watch has shown the version that the server had, everything up to it was emitted."""

    async def play(_: web.Request, answer: Answer) -> None:
        await answer.begin()
        server.pods, server.version = {"a": pod("a", 4), "b": pod("b", 5)}, 5
        await until_true(lambda: len(server.lists) == 2)  # the question for the newest version
        await answer.event("ADDED", pod("a", 4))
        await answer.event("ADDED", pod("b", 5))
        await asyncio.Event().wait()

    server.acts.append(play)
    async with catching_up(server.kubeconfig) as (image, reflector):
        await until_true(lambda: server.version == 5)
        await reflector.catch_up()
        assert image.emitted[1:3] == ["+a", "+b"]
    assert server.lists[1]["limit"] == "1"


async def test_catching_up_lists_where_the_watch_is_silent(server: FaultyServer) -> None:
    """A half-open or quiet watch does not show how far it is; a new list does, also during a long pause."""

    async def silent(_: web.Request, answer: Answer) -> None:
        await answer.begin()
        await asyncio.Event().wait()

    server.acts.extend([silent, silent])
    async with catching_up(server.kubeconfig) as (image, reflector):
        await until_true(lambda: len(server.watches) == 1)
        server.pods, server.version = {"late": pod("late", 9)}, 9
        await reflector.catch_up()
        assert "+late" in image.emitted


async def test_broken_watch_is_noticed_and_mends(server: FaultyServer) -> None:
    """The time counts from the end of the last live watch, and is 0 while one is live."""
    let_in = asyncio.Event()

    async def refuse(_: web.Request, answer: Answer) -> None:
        if not let_in.is_set():
            answer.stream.set_status(500)
        await answer.begin()
        if let_in.is_set():
            await asyncio.Event().wait()

    server.acts.extend([refuse] * 1000)
    async with catching_up(server.kubeconfig) as (_, reflector):
        await until_true(lambda: len(server.watches) > 2)
        assert reflector.broken_s() > 0
        let_in.set()
        await until_true(lambda: reflector.broken_s() == 0)
