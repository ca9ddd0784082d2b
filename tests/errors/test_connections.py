"""A connection that fails says why, and what to do, in one line: NATS, Redis, the API server, sockets, kubeconfigs.

What always holds: no line names a password.
"""

import asyncio
import contextlib
import gc
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from nats.aio.client import Client

from placer.stores.scores import ScoreList, ScoresAwayError
from plimsoll.broker.client import BrokerAwayError, BrokerClient
from plimsoll.bus import client as bus_client
from plimsoll.bus.access import BusAccess
from plimsoll.bus.client import connect
from plimsoll.kube import client as kube
from plimsoll.kube.transport import RefusedError, TransientError, error_from
from plimsoll.part.errors import InputError
from plimsoll_cli.asking import NoPlacerError
from plimsoll_cli.cluster import Cluster, kubeconfig_of
from plimsoll_cli.demo import servers
from plimsoll_cli.demo.servers import EmbeddedServer, ServerKind, running
from plimsoll_cli.events import NoEventsError, connected
from plimsoll_cli.explain import explanation
from tests.logs import capture_logs
from tests.servers.apiserver import ApiServer
from tests.servers.waiting import until

SECRET = "open-sesame"  # noqa: S105 - of servers of this test
NOTHING = "nothing listens there"
LOGIN = "the user or password is refused"


@pytest.fixture(scope="module")
async def locked_nats(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[EmbeddedServer]:
    """A NATS server with a user and a password."""

    def arguments(port: int, directory: Path) -> list[str]:
        return [*servers._nats_arguments(port, directory), "--user", "plimsoll", "--pass", SECRET]

    kind = ServerKind("nats-server", "nats", "Server is ready", servers._nats_program, arguments)
    async with running(kind, tmp_path_factory.mktemp("nats")) as server:
        yield server


@pytest.fixture(scope="module")
async def locked_valkey(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[EmbeddedServer]:
    """A Valkey server with a password, and a user who may do nothing."""

    def arguments(port: int, directory: Path) -> list[str]:
        nobody = ("--user", "nobody", "on", f">{SECRET}", "+ping")
        return [*servers._valkey_arguments(port, directory), "--requirepass", SECRET, *nobody]

    kind = ServerKind(
        "valkey-server", "redis", "Ready to accept connections", servers._valkey_program, arguments
    )
    async with running(kind, tmp_path_factory.mktemp("valkey")) as server:
        yield server


async def told_of_nats(url: str) -> list[str]:
    """The causes in the log of a placer's connection, once there is one."""
    client, told = Client(), list[str]()
    with capture_logs() as logs:
        task = asyncio.create_task(connect(client, url, "test"))

        async def has_told() -> bool:
            return bool(logs)

        try:
            await until(has_told)
            told = [str(line["error"]) for line in logs if "error" in line]
            assert SECRET not in str(logs)
            assert "wrong-word" not in str(logs)
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            await client.close()
    return told


async def test_nats_names_the_cause(locked_nats: EmbeddedServer) -> None:
    """A wrong password, a server that is away, an unknown host, and no URL."""
    host = locked_nats.url.removeprefix("nats://")
    mend = "mend it in PLIMSOLL_NATS_URL"
    assert await told_of_nats(f"nats://plimsoll:wrong-word@{host}") == [f"{LOGIN}; {mend}"]
    assert await told_of_nats(f"nats://{host}") == [f"{LOGIN}; {mend}"]
    [away] = await told_of_nats("nats://127.0.0.1:1")
    assert away.startswith(NOTHING)
    assert "start the server, or correct the address in PLIMSOLL_NATS_URL" in away
    [unknown] = await told_of_nats("nats://no.such.host.invalid:4222")
    assert unknown.startswith("the host name is not known")
    with pytest.raises(NoEventsError, match=rf"does not answer: {LOGIN}; mend it in --nats-url"):
        await connected(f"nats://plimsoll:wrong-word@{host}", BusAccess(), "test", [])
    with pytest.raises(InputError, match=r"'foo' is no URL of such a server; begin it with nats://"):
        await connected("foo", BusAccess(), "test", [])


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # nats-py, cancelled, leaves its connection
async def test_a_server_that_does_not_greet_is_told(
    valkey: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The address of Redis in the place of that of NATS: it takes the connection and waits, as we do."""
    monkeypatch.setattr(bus_client, "SILENT_S", 0.1)
    [silent] = await told_of_nats(f"nats://127.0.0.1:{valkey.port}")
    assert silent.startswith("there was no answer in time (the server sent no greeting)")
    gc.collect()  # as below


@pytest.mark.parametrize(
    ("login", "said"),
    [
        (":wrong-word@", f"{LOGIN}; mend it in PLIMSOLL_REDIS_URL"),
        ("", f"{LOGIN}; mend it in PLIMSOLL_REDIS_URL"),
        (f"nobody:{SECRET}@", "the user has too few rights"),
    ],
)
@pytest.mark.filterwarnings(
    "ignore:unclosed:ResourceWarning"
)  # redis-py leaves the socket of a refused login
async def test_redis_names_the_cause(locked_valkey: EmbeddedServer, login: str, said: str) -> None:
    """A wrong or missing password, and a user without rights."""
    url = f"redis://{login}127.0.0.1:{locked_valkey.port}"
    scores = ScoreList(url, rooms_of=lambda _: ())
    try:
        with pytest.raises(ScoresAwayError) as failed:
            await scores.fill(())
    finally:
        await scores.close()
    assert said in str(failed.value)
    assert SECRET not in str(failed.value)
    del failed
    gc.collect()  # here, where the warning is expected, and not in a later test


async def test_redis_that_is_away_names_the_cause(tmp_path: Path) -> None:
    """Nothing listens, or the socket does not exist."""
    for url, said in (("redis://127.0.0.1:1", NOTHING), (f"unix://{tmp_path}/none", "it does not exist")):
        scores = ScoreList(url, rooms_of=lambda _: ())
        try:
            with pytest.raises(ScoresAwayError, match=said):
                await scores.fill(())
        finally:
            await scores.close()


async def changed(apiserver: ApiServer, path: Path, old: str, new: str) -> Path:
    """A kubeconfig with one change."""
    text = await asyncio.to_thread(apiserver.kubeconfig().read_text)
    assert old in text
    await asyncio.to_thread(path.write_text, text.replace(old, new))
    return path


async def test_the_api_server_names_the_cause(apiserver: ApiServer, tmp_path: Path) -> None:
    """A wrong token, missing rights, a server that is away; each cause is logged once, not for each request."""
    wrong = await changed(apiserver, tmp_path / "token", apiserver.token, "wrong-word")
    away = await changed(apiserver, tmp_path / "away", apiserver.url, "https://127.0.0.1:1")
    with capture_logs() as logs:
        async with kube.connect(wrong) as client:
            for _ in range(3):
                with pytest.raises(
                    RefusedError, match=r"does not accept this token.*renew it in the kubeconfig"
                ):
                    await client.get("/api/v1/pods")
        async with kube.connect(away) as client:
            for _ in range(3):
                with pytest.raises(TransientError, match=f"{NOTHING}.*correct the address in the kubeconfig"):
                    await client.get("/api/v1/pods")
        async with kube.connect(apiserver.kubeconfig("somebody")) as client:
            with pytest.raises(RefusedError, match=r"cannot list resource.*give this account the right"):
                await client.get("/api/v1/pods")
    assert len(logs) == 2
    assert "wrong-word" not in str(logs)


def test_a_path_that_nobody_serves_is_no_missing_object() -> None:
    """A server's own 404 tells of the path; a Status tells of an object."""
    path = "GET /x/api/v1/namespaces/n/pods/p"
    assert "nothing is served at this path" in str(error_from(404, b"404 page not found", path))
    assert "nothing is served" not in str(error_from(404, b'{"reason":"NotFound","message":"pods p"}', path))


def test_a_quota_is_no_missing_right() -> None:
    """Admission answers with 403 too, and its words have their own remedy."""
    body = b'{"reason":"Forbidden","message":"exceeded quota: q, requested: plimsoll.dev/gpu=1"}'
    assert "ClusterRole" not in str(error_from(403, body, "POST /api/v1/namespaces/n/pods"))


STRANGER = """{current-context: c, contexts: [{name: c, context: {cluster: k, user: zz}}],
clusters: [{name: k, cluster: {server: "https://h"}}]}"""


async def test_an_unknown_context_is_named_by_its_option(tmp_path: Path) -> None:
    """The remedy lists the contexts of the file."""
    path = tmp_path / "kubeconfig"
    await asyncio.to_thread(path.write_text, STRANGER)
    with pytest.raises(InputError, match=r"^--context: 'zz' is no context of .*; name one of c$"):
        async with kube.connect(path, "zz"):
            pass


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "does not exist; name a readable kubeconfig"),
        ("apiVersion: v1\nkind: Config\n", "names no current context"),
        ("{{{", "cannot be used .*mend it: `kubectl --kubeconfig` with this file must work"),
    ],
)
async def test_a_kubeconfig_names_the_cause(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], text: str | None, said: str
) -> None:
    """The error names the file, and the library prints nothing beside it."""
    path = tmp_path / "kubeconfig"
    if text is not None:
        await asyncio.to_thread(path.write_text, text)
    with pytest.raises(InputError, match=said) as refused:
        async with kube.connect(path):
            pass
    assert str(path) in str(refused.value)
    assert capfd.readouterr() == ("", "")


NO_URL = "is no URL of such a server; begin it with https://"


@pytest.mark.parametrize(
    ("server", "shown", "problem"),
    [
        *((one, one, NO_URL) for one in ("http://[::1", "127.0.0.1:6443", "https://127.0.0.1:99999", "5")),
        (f"https://u:{SECRET}@h", "https://…@h", "has a user or password in it; write them into users[]"),
    ],
)
async def test_an_address_that_cannot_work_is_refused_at_once(
    tmp_path: Path, server: str, shown: str, problem: str
) -> None:
    """The error names the file, among several, that has the address; and field and remedy, and no secret."""
    first, path = tmp_path / "first", tmp_path / "second"
    cluster = {"name": "c", "cluster": {"server": server}}
    users = [{"name": "u", "user": {"token": "t"}}]
    chosen = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    await asyncio.to_thread(first.write_text, json.dumps({"current-context": "c", "contexts": [chosen]}))
    await asyncio.to_thread(path.write_text, json.dumps({"clusters": [cluster], "users": users}))
    with pytest.raises(InputError) as refused:
        async with kube.connect(Path(f"{first}:{path}")):
            pass
    assert f"{path}: clusters[].cluster.server: {shown!r} {problem}" in str(refused.value)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    ("damaged", "said"),
    [
        ({"server": 5}, r"is damaged at clusters\[0\]\.cluster\.server: Expected `str`, got `int`; mend"),
        ({"server": None}, r"clusters\[\]\.cluster\.server: '' is no URL"),
        ({"context": "c"}, r"is damaged at contexts\[0\]\.context: Expected `object`, got `str`; mend that"),
    ],
)
async def test_a_field_of_another_type_is_named(
    tmp_path: Path, damaged: dict[str, object], said: str
) -> None:
    """The error has the file, the place in it and the remedy, and not the words of a library that fell over it."""
    path = tmp_path / "kubeconfig"
    given: dict[str, object] = {"server": "https://h", "user": {"token": SECRET}}
    given |= {"context": {"cluster": "c", "user": "u"}, **damaged}
    await asyncio.to_thread(
        path.write_text,
        json.dumps(
            {
                "current-context": "c",
                "contexts": [{"name": "c", "context": given["context"]}],
                "clusters": [{"name": "c", "cluster": {"server": given["server"]}}],
                "users": [{"name": "u", "user": given["user"]}],
            }
        ),
    )
    with pytest.raises(InputError, match=said) as refused:
        async with kube.connect(path):
            pass
    told = str(refused.value)
    assert (str(path) in told, SECRET in told, "\n" in told) == (True, False, False)


def test_a_command_without_a_cluster_names_the_ways_to_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """No kubeconfig anywhere: the remedy names the options of both kinds of pods."""
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(InputError, match=r"--kubeconfig or KUBECONFIG; or -n plimsoll-run"):
        kubeconfig_of(Cluster())


async def test_the_brokers_socket_names_the_cause(tmp_path: Path) -> None:
    """No broker, and a socket that is none."""
    with pytest.raises(
        BrokerAwayError, match=r"no broker runs there .*see its log, or name another directory"
    ):
        await BrokerClient(tmp_path, timeout_s=0.2).describe()


async def test_the_placers_address_names_the_cause(tmp_path: Path) -> None:
    """No placer, no socket, and a URL of another kind."""
    with pytest.raises(NoPlacerError, match=f"no placer answers at http://127.0.0.1:1: {NOTHING}"):
        await explanation("http://127.0.0.1:1", "n", "p", 1, None)
    with pytest.raises(NoPlacerError, match="it does not exist"):
        await explanation(str(tmp_path / "none"), "n", "p", 1, None)
    with pytest.raises(InputError, match="'ftp://x' is no URL of such a server; begin it with http://"):
        await explanation("ftp://x", "n", "p", 1, None)
