"""Readers of the placer's port as users of a real cluster, with real tokens of service accounts."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import msgspec
import pytest

from placer.api.access import CannotJudgeError, ForbiddenReaderError, UnknownReaderError
from placer.kube import reviews
from placer.kube.reviews import Reviews
from plimsoll.kube.client import connect
from plimsoll.placer_api.access import AUDIENCE, PROXIED, READER, bearer
from plimsoll.placer_api.http import Problem
from plimsoll_cli.demo.servers import EmbeddedServer
from tests.deploy.accounts import readers, token_of
from tests.placer.live.world import card, serving, state, world
from tests.placer.test_app import placer
from tests.servers.apiserver import ApiServer
from tests.servers.waiting import until


@pytest.fixture
async def access(apiserver: ApiServer, namespace: str, tmp_path: Path) -> AsyncIterator[Reviews]:
    """The reviews of a placer that has the chart's rights and no others."""
    async with readers(apiserver, namespace, tmp_path) as kubeconfig, connect(kubeconfig) as transport:
        yield Reviews(transport, time.monotonic)


async def answer(url: str, token: str, path: str = "/v1/state") -> tuple[int, str]:
    """The status of a path for a token, and the refusal."""
    async with aiohttp.request("GET", url + path, headers={"Authorization": bearer(token)}) as response:
        body = await response.read()
        assert token.encode() not in body
        return response.status, "" if response.ok else msgspec.json.decode(body, type=Problem).message


async def test_users_of_the_cluster_read_by_their_rights(
    access: Reviews, apiserver: ApiServer, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A reader's tokens are accepted, those for others and invented ones are unknown, and a stranger is forbidden."""
    await apiserver.must(
        "POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": "stranger"}}
    )
    own = await token_of(apiserver, namespace, READER, AUDIENCE)
    tokens = {
        "own": own,
        "of a pod": await token_of(apiserver, namespace, READER),
        "for others": await token_of(apiserver, namespace, READER, "vault"),
        "invented": own[:-4] + "AAAA",
        "stranger": await token_of(apiserver, namespace, "stranger", AUDIENCE),
    }
    async with serving(await world(state("n1", card("GPU-1"))), access) as url:
        found = {name: await answer(url, token) for name, token in tokens.items()}
        assert {name: status for name, (status, _) in found.items()} == {
            "own": 200,
            "of a pod": 200,
            "for others": 401,
            "invented": 401,
            "stranger": 403,
        }
        assert (
            f"user 'system:serviceaccount:{namespace}:stranger' may not get '/v1/state'"
            in found["stranger"][1]
        )
        assert READER in found["stranger"][1]
        for path in ("/metrics", "/v1/nodes", "/v1/openapi.json", "/v1/live?once=1"):
            assert await answer(url, own, path) == (200, ""), path
        assert (await answer(url, own, "/v1/pods/team/nobody/explain"))[0] == 404
        async with aiohttp.request("GET", url + "/v1/gpus", headers={PROXIED: bearer(own)}) as response:
            assert response.status == 200
    assert not any(token in caplog.text for token in tokens.values())


async def test_a_right_that_was_taken_away_reads_no_more(
    access: Reviews, apiserver: ApiServer, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer is good for some seconds, and is asked for again then."""
    token = await token_of(apiserver, namespace, READER, AUDIENCE)
    await access.check(token, "/v1/state")
    bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
    await apiserver.must("DELETE", f"{bindings}/{READER}")
    await access.check(token, "/v1/state")

    async def is_forbidden() -> bool:
        late_s = time.monotonic() + reviews.KEPT_S
        monkeypatch.setattr(access, "clock_s", lambda: late_s)
        try:
            await access.check(token, "/v1/state")
        except ForbiddenReaderError:
            return True
        access._accepted.clear()
        return False

    await until(is_forbidden)


async def test_nobody_is_let_in_while_the_api_server_is_away(
    apiserver: ApiServer, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that was judged just now goes on, however many were invented since; all others have to wait."""
    monkeypatch.setattr(reviews, "MOST_KEPT", 2)
    async with readers(apiserver, namespace, tmp_path) as kubeconfig:
        async with connect(kubeconfig) as transport:
            access = Reviews(transport, time.monotonic)
            token = await token_of(apiserver, namespace, READER, AUDIENCE)
            await access.check(token, "/v1/state")
            for number in range(3):
                with pytest.raises(UnknownReaderError):
                    await access.check(f"invented-{number}", "/v1/state")
        await access.check(token, "/v1/state")
        async with serving(await world(), access) as url:
            status, problem = await answer(url, await token_of(apiserver, namespace, READER, AUDIENCE))
            assert (status, "cannot say now" in problem) == (503, True)
        monkeypatch.setattr(access, "clock_s", lambda: time.monotonic() + reviews.KEPT_S)
        with pytest.raises(CannotJudgeError):
            await access.check(token, "/v1/state")


async def test_more_readers_than_can_be_judged_are_sent_away(
    access: Reviews, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flood of invented tokens waits in no long queue."""
    monkeypatch.setattr(reviews, "MOST_WAITING", 0)
    with pytest.raises(CannotJudgeError, match="wait to be judged already"):
        await access.check("invented", "/v1/state")


async def test_an_accepted_reader_reads_on_while_many_others_wait(
    access: Reviews, apiserver: ApiServer, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When its answer has expired, it is reviewed again beside a flood of invented tokens."""
    token = await token_of(apiserver, namespace, READER, AUDIENCE)
    await access.check(token, "/v1/state")
    monkeypatch.setattr(reviews, "MOST_WAITING", 0)
    monkeypatch.setattr(access, "_places", asyncio.Semaphore(0))
    late_s = time.monotonic() + reviews.KEPT_S
    monkeypatch.setattr(access, "clock_s", lambda: late_s)
    await access.check(token, "/v1/state")
    assert [one.until_s for one in access._accepted.values()] == [late_s + reviews.KEPT_S]


async def test_a_placer_asks_by_its_setting(
    tmp_path: Path, nats: EmbeddedServer, valkey: EmbeddedServer, apiserver: ApiServer
) -> None:
    """The placer's port asks for users of the cluster; its control socket belongs to its owner and asks nothing."""
    settings = {"kubeconfig": str(apiserver.kubeconfig()), "lease_s": "15"}
    settings |= {"http_port": "0", "http_auth": "kubernetes"}
    async with placer(tmp_path, nats, valkey, **settings) as part, aiohttp.ClientSession() as session:
        for headers, status in (
            ({}, 401),
            (apiserver.authorization("somebody"), 403),
            (apiserver.authorization(), 200),
        ):
            async with session.get(part.url + "/v1/state", headers=headers) as response:
                assert response.status == status
        assert (await part.state()).nodes == ()
