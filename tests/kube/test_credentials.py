"""Credentials are renewed once for all requests, and no request waits while the old ones are good."""

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from kubernetes.aio import config
from kubernetes.aio.client import Configuration

from plimsoll.kube import credentials as credentials_module
from plimsoll.kube import exec_plugin
from plimsoll.kube.client import KubeClient, connect
from plimsoll.kube.credentials import expiring
from plimsoll.kube.lease import Lease
from plimsoll.kube.lease_rules import LeaseTiming
from plimsoll.kube.transport import PatchKind, RefusedError, TransientError
from plimsoll.part.errors import InputError
from tests.kube.plugin import Guard, Plugin, guard, kubeconfig
from tests.logs import capture_logs
from tests.servers.apiserver import ApiServer
from tests.servers.waiting import PATIENCE_S, until, until_true

AT_ONCE = 20
"""Requests that are sent together."""


@pytest.fixture
async def server() -> AsyncIterator[Guard]:
    """A server that accepts any token until the test says otherwise."""
    async with guard() as made:
        yield made


@pytest.fixture
def plugin(tmp_path: Path) -> Plugin:
    """A plugin that works."""
    made = Plugin(tmp_path)
    made.install()
    return made


@contextlib.asynccontextmanager
async def by_plugin(server: Guard, plugin: Plugin) -> AsyncIterator[KubeClient]:
    """A client of the server with the plugin's credentials; the plugin has run once."""
    async with connect(kubeconfig(plugin.folder / "config", server.url, plugin.user())) as client:
        yield client


async def get_together(client: KubeClient) -> None:
    """Send several requests at once; all must succeed."""
    async with asyncio.TaskGroup() as tasks:
        for _ in range(AT_ONCE):
            tasks.create_task(client.get("/version"))


def is_alive(pid: int) -> bool:
    """Whether a process runs, or waits to be reaped."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def renew_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make tokens that live for some minutes ask for their renewal from the first request on."""
    monkeypatch.setattr(credentials_module, "SHORTEST_LIFE_S", 0.0)
    monkeypatch.setattr(credentials_module, "REREAD_S", 0.0)
    monkeypatch.setattr(credentials_module, "FIRST_PAUSE_S", 0.0)


@pytest.mark.parametrize(
    ("lives_s", "renew_s", "lasts_s"),
    [(3600, 3300, 3600), (600, 300, 600), (100, 50, 100), (2, 5, 10), (-7, 5, 10)],
)
def test_time_of_a_renewal(lives_s: float, renew_s: float, lasts_s: float) -> None:
    """A token is renewed some minutes before its end, or in the middle of a short life, and used for a while."""
    now = datetime.now(UTC)
    token = expiring("Bearer t", now + timedelta(seconds=lives_s), now)
    assert (token.renew_s, token.lasts_s) == (renew_s, lasts_s)


async def test_requests_go_on_with_the_old_token_while_a_plugin_works(server: Guard, plugin: Plugin) -> None:
    """A plugin that hangs delays no request while its last token is good; its next token is then used."""
    plugin.expire(3600)
    async with by_plugin(server, plugin) as client:
        client.credentials._renew_s = 0.0  # as if most of the hour were over
        plugin.hold()
        plugin.expire(None)
        async with asyncio.timeout(PATIENCE_S):
            while len(plugin.pids()) < 2:
                await client.get("/version")
                await asyncio.sleep(0.05)
        await get_together(client)
        assert set(server.seen) == {"token-1"}
        plugin.release()

        async def renewed() -> bool:
            await client.get("/version")
            return server.seen[-1] == "token-2"

        await until(renewed)
        await get_together(client)
        assert len(plugin.pids()) == 2


async def test_all_requests_wait_for_one_run_once_the_token_has_expired(
    server: Guard, plugin: Plugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run goes on though requests give up waiting, and all the others use its token."""
    renew_at_once(monkeypatch)
    plugin.expire(-1)
    async with by_plugin(server, plugin) as client:
        plugin.hold()
        plugin.expire(None)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await client.get("/version")
        requests = asyncio.create_task(get_together(client))
        await plugin.until_run(2)
        plugin.release()
        await requests
        assert (set(server.seen), len(plugin.pids())) == ({"token-2"}, 2)


async def test_a_refused_token_is_renewed_once(server: Guard, plugin: Plugin) -> None:
    """After 401 the plugin runs once for all requests, and each request is sent once more: reads and writes."""
    async with by_plugin(server, plugin) as client:
        await get_together(client)
        server.good, server.seen = {"token-2"}, []
        async with asyncio.TaskGroup() as tasks:
            for _ in range(AT_ONCE):
                tasks.create_task(client.patch("/x", {"a": 1}, PatchKind.MERGE))
            tasks.create_task(client.get("/version"))
        assert len(plugin.pids()) == 2
        assert server.seen.count("token-2") == AT_ONCE + 1
        assert server.seen.count("token-1") <= AT_ONCE + 1


async def test_a_token_that_is_refused_again_is_an_error(server: Guard, plugin: Plugin) -> None:
    """A request whose new token is refused too is not sent a third time. Not each such request runs the plugin."""
    server.good = set()
    async with by_plugin(server, plugin) as client:
        with pytest.raises(RefusedError, match="401"):
            await client.get("/version")
        assert server.seen == ["token-1", "token-2"]
        for _ in range(AT_ONCE):
            with pytest.raises(RefusedError, match="401"):
                await client.get("/version")
        assert len(plugin.pids()) < AT_ONCE


async def test_a_failing_plugin_is_transient_and_tried_again(server: Guard, plugin: Plugin) -> None:
    """Without any token, requests fail with the plugin's own words, until the plugin works again."""
    plugin.fail()
    async with by_plugin(server, plugin) as client:
        with capture_logs() as logs, pytest.raises(TransientError, match="no way to the cloud"):
            await client.get("/version")
        assert ["no way to the cloud" in entry["error"] for entry in logs] == [True]
        assert server.seen == []
        plugin.mend()

        async def works() -> bool:
            with contextlib.suppress(TransientError):
                await client.get("/version")
            return bool(server.seen)

        await until(works)


@pytest.mark.parametrize("text", ["", "hello", "{}", '{"status": {}}', '{"status": {"token": ""}}'])
async def test_a_plugin_without_a_token_is_transient(server: Guard, plugin: Plugin, text: str) -> None:
    """An answer without a token is not sent as one, and not shown."""
    async with by_plugin(server, plugin) as client:
        server.good = set()
        plugin.program.write_text(f"#!/bin/sh\necho '{text}'\n")
        with capture_logs() as logs, pytest.raises(RefusedError, match="401"):
            await client.get("/version")
    no_token, refused = (entry["error"] for entry in logs)
    assert "printed no ExecCredential with credentials" in no_token
    assert "does not accept this token" in refused


async def test_a_plugin_that_hangs_is_killed(
    server: Guard, plugin: Plugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plugin that does not end in time is killed with its children, and so is one that runs at the end."""
    monkeypatch.setattr(exec_plugin, "PLUGIN_S", 0.5)
    renew_at_once(monkeypatch)
    plugin.expire(-1)
    async with by_plugin(server, plugin) as client:
        plugin.hold()
        while len(plugin.pids()) < 2:  # on a busy machine, a plugin may be killed before its first line runs
            with pytest.raises(TransientError, match="did not end in"):
                await client.get("/version")
        await until_true(lambda: not is_alive(plugin.pids()[-1]))
        monkeypatch.setattr(exec_plugin, "PLUGIN_S", 600)
        runs = len(plugin.pids())
        waiting = asyncio.create_task(client.get("/version"))
        await plugin.until_run(runs + 1)
    with pytest.raises(TransientError):
        await waiting
    await until_true(lambda: not is_alive(plugin.pids()[-1]))


async def test_a_lease_is_held_while_a_plugin_hangs(
    apiserver: ApiServer, namespace: str, plugin: Plugin
) -> None:
    """A leader renews its Lease with the old token, however long the plugin takes for the next one."""
    plugin.give(apiserver.token)
    plugin.expire(3600)
    path = kubeconfig(
        plugin.folder / "config",
        apiserver.url,
        plugin.user(),
        {"certificate-authority": str(apiserver.plane.ca_file)},
    )
    async with connect(path) as client:
        client.credentials._renew_s = 0.0  # as if most of the hour were over
        plugin.hold()
        lease = Lease(client, namespace, "l", "me", LeaseTiming(2))
        leading = asyncio.create_task(lease.run())
        await plugin.until_run(2)
        versions = set[str]()

        async def renewed() -> bool:
            assert not leading.done()
            record = lease._seen.record if lease._seen else None
            versions.update([record.metadata.resourceVersion] if record else [])
            return len(versions) > 10  # twice its duration and more

        await until(renewed)
        assert (lease.transitions, len(plugin.pids())) == (0, 2)
        plugin.release()
        leading.cancel()
        await asyncio.wait([leading])


@pytest.mark.parametrize("field", ["command", "apiVersion"])
async def test_an_incomplete_plugin_is_refused(plugin: Plugin, field: str) -> None:
    """A client whose kubeconfig's `exec` lacks a field does not begin."""
    user = plugin.user()
    entry = user["exec"]
    assert isinstance(entry, dict)
    del entry[field]
    with pytest.raises(InputError, match=field):
        async with connect(kubeconfig(plugin.folder / "config", "http://127.0.0.1:9", user)):
            pass


async def test_a_plugin_gets_its_arguments_and_environment(server: Guard, plugin: Plugin) -> None:
    """Renewals run the plugin with the arguments and variables of the kubeconfig, and say what they understand."""
    user = plugin.user()
    entry = user["exec"]
    assert isinstance(entry, dict)
    entry |= {"args": ["a b", "c"], "env": [{"name": "CLOUD", "value": "far"}]}
    async with connect(kubeconfig(plugin.folder / "config", server.url, user)) as client:
        seen = plugin.folder / "seen"
        plugin.program.write_text(f'#!/bin/sh\necho "$CLOUD|$1|$2|$KUBERNETES_EXEC_INFO" > {seen}\n')
        server.good = set()
        with pytest.raises(RefusedError):
            await client.get("/version")
    cloud, first, second, info = seen.read_text().split("|")
    assert (cloud, first, second) == ("far", "a b", "c")
    assert json.loads(info) == {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "spec": {"interactive": False},
    }


async def test_a_plugin_knows_its_cluster_and_a_relative_command_its_kubeconfig(
    server: Guard, plugin: Plugin, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """`provideClusterInfo` is honoured from the first run on, and `./plugin` is beside the kubeconfig."""
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    seen = plugin.folder / "seen"
    text = plugin.program.read_text().replace("\n", f'\necho "$KUBERNETES_EXEC_INFO" > {seen}\n', 1)
    plugin.program.write_text(text)
    entry = plugin.user()["exec"]
    assert isinstance(entry, dict)
    entry |= {"command": "./plugin", "provideClusterInfo": True}
    cluster = {
        "tls-server-name": "api",
        "extensions": [{"name": exec_plugin.CLUSTER_EXTENSION, "extension": {"shoot": "a"}}],
    }
    path = kubeconfig(plugin.folder / "config", server.url, {"exec": entry}, cluster)
    async with connect(path) as client:
        await client.get("/version")
    assert json.loads(seen.read_text())["spec"] == {
        "interactive": False,
        "cluster": {"server": server.url, "tls-server-name": "api", "config": {"shoot": "a"}},
    }
    assert len(plugin.pids()) == 1
    monkeypatch.chdir(plugin.folder)
    async with connect(Path("config")) as client:  # as by KUBECONFIG=config, without a folder
        await client.get("/version")
    assert len(plugin.pids()) == 2


async def test_a_missing_plugin_is_named_with_the_kubeconfigs_hint(plugin: Plugin) -> None:
    """The failure says which program is missing, and how the kubeconfig says to install it."""
    entry = plugin.user()["exec"]
    assert isinstance(entry, dict)
    entry |= {"command": "no-such-login", "installHint": "brew install no-such-login"}
    path = kubeconfig(plugin.folder / "config", "http://127.0.0.1:9", {"exec": entry})
    async with connect(path) as client:
        with pytest.raises(TransientError, match=r"no-such-login cannot be started .*; brew install"):
            await client.get("/version")


@contextlib.asynccontextmanager
async def by_file(
    server: Guard, folder: Path, *, in_cluster: bool, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[KubeClient]:
    """A client whose token is in the file `token` of the folder: a kubeconfig's, or a service account's."""
    path: Path | None = None
    if in_cluster:

        def load(configuration: Configuration, *, try_refresh_token: bool) -> None:
            assert not try_refresh_token, "the library's own reading blocks the event loop"
            configuration.host = server.url  # the library's own only speaks TLS

        monkeypatch.setattr(config, "load_incluster_config", load)
        monkeypatch.setattr(credentials_module, "SERVICE_TOKEN", folder / "token")
    else:
        path = kubeconfig(folder / "config", server.url, {"tokenFile": "token"})
    async with connect(path) as client:
        yield client


@pytest.mark.parametrize("in_cluster", [True, False])
async def test_a_tokens_file_is_read_again(
    server: Guard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, in_cluster: bool
) -> None:
    """A changed file is noticed after a while, and an unreadable one leaves the old token in use."""
    renew_at_once(monkeypatch)
    (tmp_path / "token").write_text("first\n")
    async with by_file(server, tmp_path, in_cluster=in_cluster, monkeypatch=monkeypatch) as client:

        async def token() -> str:
            await client.get("/version")
            return server.seen[-1]

        assert await token() == "first"
        (tmp_path / "token").write_text("")
        with capture_logs() as logs:
            while not logs:
                assert await token() == "first"
                await asyncio.sleep(0.02)
        assert "holds no token" in logs[0]["error"]
        (tmp_path / "token").write_text("second\n")

        async def is_second() -> bool:
            return await token() == "second"

        await until(is_second)


@pytest.mark.parametrize("in_cluster", [True, False])
async def test_a_refused_token_is_read_again_at_once(
    server: Guard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, in_cluster: bool
) -> None:
    """After 401 the file is read again, although it was read just before."""
    (tmp_path / "token").write_text("first")
    async with by_file(server, tmp_path, in_cluster=in_cluster, monkeypatch=monkeypatch) as client:
        await client.get("/version")
        (tmp_path / "token").write_text("second")
        server.good = {"second"}
        await client.get("/version")
        assert server.seen == ["first", "first", "second"]


@pytest.mark.parametrize("text", [None, "", " \n"])
async def test_a_tokens_file_without_a_token_is_refused(tmp_path: Path, text: str | None) -> None:
    """A client whose token's file is missing or empty does not begin."""
    if text is not None:
        (tmp_path / "token").write_text(text)
    path = kubeconfig(tmp_path / "config", "http://127.0.0.1:9", {"tokenFile": "token"})
    with pytest.raises(InputError, match="token"):
        async with connect(path):
            pass
