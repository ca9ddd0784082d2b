"""Redis by its sentinels: the URL names them, and the client finds the master by them."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis.asyncio as redis
from redis.asyncio.sentinel import SentinelConnectionPool
from redis.exceptions import ConnectionError as RedisConnectionError

from plimsoll.ids import NodeName
from plimsoll.part.errors import InputError
from plimsoll.placer_api.redis_keys import ORDER
from plimsoll.redis_client import (
    OPTIONS,
    TLS_OPTIONS,
    SentinelUrl,
    check_redis_url,
    open_redis,
    parse_sentinel_url,
)
from plimsoll_cli.demo.servers import EmbeddedServer, running
from tests.placer.arrivals import bus, eventually, publish, report, taking_in
from tests.servers import clusters
from tests.servers.apiserver import ApiServer
from tests.servers.clusters import SentinelValkey, sentinel_valkey
from tests.servers.relay import tls_relay
from tests.servers.waiting import PATIENCE_S, until

VARIABLE = "PLIMSOLL_REDIS_URL"


@pytest.mark.parametrize(
    ("url", "meaning"),
    [
        ("redis+sentinel://a/m", SentinelUrl((("a", 26379),), "m")),
        ("redis+sentinel://a:1,[::1]:2,c/m/3", SentinelUrl((("a", 1), ("::1", 2), ("c", 26379)), "m", 3)),
        ("rediss+sentinel://a/m/", SentinelUrl((("a", 26379),), "m", tls=True)),
        (
            "redis+sentinel://u:p%2Fw@a,b/m?sentinel_username=s&sentinel_password=%26",
            SentinelUrl(
                (("a", 26379), ("b", 26379)),
                "m",
                login={"username": "u", "password": "p/w"},
                sentinel_login={"username": "s", "password": "&"},
            ),
        ),
        ("redis+sentinel://:p@a/m", SentinelUrl((("a", 26379),), "m", login={"password": "p"})),
    ],
)
def test_sentinel_url_is_understood(url: str, meaning: SentinelUrl) -> None:
    """Hosts, ports, the master's name, database, TLS and both logins are read from the URL."""
    check_redis_url(VARIABLE, url)
    assert parse_sentinel_url(VARIABLE, url) == meaning


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("redis+sentinel://u:secret@a:26379", "names no master"),
        ("redis+sentinel:///m", "'' has no host"),
        ("redis+sentinel://u:secret@a,,b/m", "'' has no host"),
        ("redis+sentinel://a:0/m", "'a:0' has port 0"),
        ("redis+sentinel://a:x/m", "names no sentinels"),
        ("redis+sentinel://a/m/zero", "has 'zero' where the number of a database stands"),
        ("redis+sentinel://a/m?sentinel_password=secret&timeout=3", "has the unknown option 'timeout'"),
        ("sentinel://a/m", "is no URL of such a server"),
    ],
)
def test_sentinel_url_that_cannot_work_is_refused(url: str, problem: str) -> None:
    """The error names variable, problem and remedy, and shows no password."""
    with pytest.raises(InputError) as raised:
        check_redis_url(VARIABLE, url)
    assert str(raised.value).startswith(f"{VARIABLE}: ")
    assert problem in str(raised.value)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        (
            "redis://h:6379/0?socket_timeout=3&max_connections=x",
            "the option 'max_connections' with the value 'x'",
        ),
        ("rediss://h/0?ssl_cert_reqs=zzz", "the option 'ssl_cert_reqs' with the value 'zzz'"),
        ("unix:///redis.sock?protocol=3", "'protocol', which is no option of such a URL"),
        ("redis://h/0?decode_responses=false", "'decode_responses', which is no option of such a URL"),
        (
            "redis://h/0?max_connections=0",
            "the option 'max_connections' with the value '0', which cannot work",
        ),
        ("redis://h/0?max_connections=-1", "the option 'max_connections' with the value '-1'"),
        ("redis://h/0?socket_timeout=0", "the option 'socket_timeout' with the value '0'"),
        ("redis://h/0?timeout=nan", "the option 'timeout' with the value 'nan'"),
        (
            "redis://h/0?socket_connect_timeout=inf",
            "the option 'socket_connect_timeout' with the value 'inf'",
        ),
        ("unix:///redis.sock?db=-1", "the option 'db' with the value '-1'"),
        ("rediss://h/0?ssl_check_hostname=maybe", "the option 'ssl_check_hostname' with the value 'maybe'"),
        ("redis://:secret@h/0?passphrase=secret", "'passphrase', which is no option of such a URL"),
        ("redis://h/0?ssl_ca_certs=/ca.pem", "'ssl_ca_certs', which is no option of such a URL"),
    ],
)
def test_an_option_that_cannot_work_is_refused(url: str, problem: str) -> None:
    """The error names variable, option, value and remedy; a misspelt password is not shown."""
    with pytest.raises(InputError, match=rf"^{VARIABLE}: .* or leave it out$") as raised:
        check_redis_url(VARIABLE, url)
    assert problem in str(raised.value)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    "url",
    [
        "redis://u:p%2Fw@h:6379/0?socket_timeout=3&client_name=plimsoll&max_connections=9",
        "rediss://h/0?ssl_cert_reqs=none&ssl_ca_certs=/ca.pem",
        "unix:///run/redis.sock?db=2&password=p%25",
    ],
)
def test_options_of_the_client_are_taken(url: str) -> None:
    """Options of a connection that people may decide stay free."""
    check_redis_url(VARIABLE, url)


@pytest.mark.parametrize("url", ["redis://h/zero", "rediss://:secret@h/-1", "redis://h/0/1"])
def test_a_database_is_a_number(url: str) -> None:
    """redis-py would silently take the first database."""
    with pytest.raises(InputError, match="where the number of a database stands; give a number") as raised:
        check_redis_url(VARIABLE, url)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("name", [*OPTIONS, *TLS_OPTIONS])
def test_the_client_knows_every_option(name: str) -> None:
    """redis-py makes a connection with each option that the check lets pass."""
    value = {"ssl_cert_reqs": "none", "ssl_check_hostname": "false"}.get(name, "1")
    url = f"rediss://h/0?{name}={value}"
    check_redis_url(VARIABLE, url)
    redis.BlockingConnectionPool.from_url(url).make_connection()  # type: ignore[no-untyped-call]  # opens nothing


@contextlib.contextmanager
def silent_port() -> Iterator[int]:
    """A port that takes connections and never answers, as a sentinel does that hangs."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


async def set_and_get(client: redis.Redis, value: str) -> str | None:
    """The value as read back; None while there is no master."""
    with contextlib.suppress(RedisConnectionError, TimeoutError):
        await client.set("key", value)
        return str(await client.get("key"))
    return None


async def test_client_passes_hung_and_dead_sentinels_and_follows_the_master(tmp_path: Path) -> None:
    """A single sentinel that answers is enough to find the master, and to find the new master after a failover."""
    async with contextlib.AsyncExitStack() as stack:
        silent = stack.enter_context(silent_port())
        valkey = await stack.enter_async_context(sentinel_valkey(tmp_path))
        hosts, _, path = valkey.url.removeprefix("redis+sentinel://").partition("/")
        url = f"redis+sentinel://127.0.0.1:{silent},127.0.0.1:1,{hosts}/{path}"
        client = open_redis(url, timeout_s=PATIENCE_S, connections=2)
        try:
            async with asyncio.timeout(PATIENCE_S):
                assert await set_and_get(client, "before") == "before"
            # More callers than connections wait for their turn.
            assert await asyncio.gather(*(client.get("key") for _ in range(9))) == ["before"] * 9
            await valkey.fail_over()
            await until(lambda: set_and_get(client, "after"))
        finally:
            await client.aclose()
        async with redis.Redis.from_url(valkey.replica.url, protocol=2) as there:
            assert await there.get("key") == b"after"


async def test_connections_that_ask_at_once_lose_no_sentinel(tmp_path: Path) -> None:
    """Many connections ask past a dead sentinel at the same time; afterwards the client still knows each of them."""
    async with sentinel_valkey(tmp_path) as valkey:
        hosts, _, path = valkey.url.removeprefix("redis+sentinel://").partition("/")
        client = open_redis(
            f"redis+sentinel://127.0.0.1:1,{hosts}/{path}", timeout_s=PATIENCE_S, connections=8
        )
        try:
            await asyncio.gather(*(set_and_get(client, "value") for _ in range(8)))
            pool = client.connection_pool
            assert isinstance(pool, SentinelConnectionPool)
            known = {one.connection_pool.connection_kwargs["port"] for one in pool.sentinel_manager.sentinels}
            assert known == {1, *(sentinel.port for sentinel in valkey.sentinels)}
        finally:
            await client.aclose()


async def test_client_logs_in_at_servers_and_at_sentinels(tmp_path: Path) -> None:
    """Both logins of the URL are used, each at its own servers, and the database is the given one."""
    async with contextlib.AsyncExitStack() as stack:
        kind = clusters._valkey_kind(("--requirepass", "p/w"))
        master = await stack.enter_async_context(running(kind, tmp_path / "master"))
        passwords = f"requirepass s&x\nsentinel auth-pass {clusters.MASTER} p/w"
        sentinel = await clusters._sentinel(stack, tmp_path / "sentinel", master.port, passwords)
        host, path = f"127.0.0.1:{sentinel.port}", f"{clusters.MASTER}/2"
        for url, error in (
            (f"redis+sentinel://:p%2Fw@{host}/{path}?sentinel_password=s%26x", None),
            (f"redis+sentinel://:p%2Fw@{host}/{path}", "No master found"),
            (f"redis+sentinel://{host}/{path}?sentinel_password=s%26x", "Authentication required"),
        ):
            client = open_redis(url, timeout_s=PATIENCE_S, connections=2)
            stack.push_async_callback(client.aclose)
            if error is None:
                assert (await client.client_info())["db"] == 2
            else:
                with pytest.raises(RedisConnectionError, match=error):
                    await client.ping()


async def test_client_speaks_tls_with_sentinels_and_servers(
    tmp_path: Path, apiserver: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `rediss+sentinel`, both the sentinel and the master get TLS alone, and their certificates are checked."""
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    certificate = apiserver.plane.ca_file  # any certificate for 127.0.0.1 with its key
    await asyncio.to_thread(tls.load_cert_chain, certificate, certificate.with_suffix(".key"))
    async with contextlib.AsyncExitStack() as stack:
        kind = clusters._valkey_kind(())
        master = await stack.enter_async_context(running(kind, tmp_path / "master"))
        to_master = await stack.enter_async_context(tls_relay(master.port, tls))
        # The sentinel reaches the master by the same address as the client, but without TLS.
        sentinel = await clusters._sentinel(stack, tmp_path / "sentinel", to_master.port)
        to_sentinel = await stack.enter_async_context(tls_relay(sentinel.port, tls))
        url = f"rediss+sentinel://127.0.0.1:{to_sentinel.port}/{clusters.MASTER}/0"
        distrusting = open_redis(url, timeout_s=PATIENCE_S, connections=1)
        stack.push_async_callback(distrusting.aclose)
        with pytest.raises(RedisConnectionError):
            await distrusting.ping()
        assert (to_sentinel.encrypted, to_master.encrypted) == (0, 0)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        client = open_redis(url, timeout_s=PATIENCE_S, connections=1)
        stack.push_async_callback(client.aclose)
        assert await until(lambda: set_and_get(client, "by TLS")) == "by TLS"
        assert to_sentinel.encrypted >= 1
        assert to_master.encrypted == 1
        assert to_sentinel.plain == 0


async def test_list_at_a_master_that_lost_the_last_reports_is_brought_forward(
    tmp_path: Path, nats: EmbeddedServer
) -> None:
    """A failover to a replica that lagged behind costs nothing: the list gets the lost reports without any event."""
    nodes = [NodeName(f"n{number}") for number in range(20)]
    async with (
        sentinel_valkey(tmp_path) as valkey,
        bus(nats) as jetstream,
        taking_in(nats, valkey) as running,
    ):
        await publish(jetstream, *(report(node, 1) for node in nodes))
        await eventually(running.listed, dict.fromkeys(nodes, (1, 1)))
        await cut_replication(valkey)
        await publish(jetstream, *(report(node, 2) for node in nodes))
        await eventually(running.listed, dict.fromkeys(nodes, (1, 2)))
        async with redis.Redis.from_url(valkey.replica.url, protocol=2, decode_responses=True) as replica:
            assert set(await replica.hvals(ORDER)) == {"1 1"}
            await valkey.fail_over()
            await eventually(running.listed, dict.fromkeys(nodes, (1, 2)))
            assert set(await replica.hvals(ORDER)) == {"1 2"}


async def cut_replication(valkey: SentinelValkey) -> None:
    """Have the replica miss everything that is written from now on."""
    async with (
        redis.Redis.from_url(valkey.replica.url, protocol=2) as replica,
        redis.Redis.from_url(valkey.master.url, protocol=2) as master,
    ):
        await eventually(lambda: _offsets_agree(master, replica), expected=True)
        await replica.config_set("masterauth", "a password that the master does not take")
        await master.client_kill_filter(_type="replica")

        async def look() -> bool:
            return bool((await replica.info("replication"))["master_link_status"] == "down")

        await until(look)


async def _offsets_agree(master: redis.Redis, replica: redis.Redis) -> bool:
    ours, theirs = await asyncio.gather(master.info("replication"), replica.info("replication"))
    return bool(ours["master_repl_offset"] == theirs["slave_repl_offset"])
