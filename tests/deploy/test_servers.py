"""NATS as the chart configures it: each part does its work with its own user, and no more than that."""

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nats as nats_client
import nats.errors
import pytest
from nats.aio.client import Client
from redis.exceptions import AuthenticationError

from monitor import settings
from monitor.outbox.store import Store
from plimsoll.bus.access import BusAccess
from plimsoll.bus.client import connect
from plimsoll.bus.stream import Stream
from plimsoll.bus.subjects import STREAM, node_token, pod_subject, state_subject
from plimsoll.envelope import encode
from plimsoll.events import Report
from plimsoll.ids import NodeName
from plimsoll.redis_client import open_redis
from plimsoll_alerts.core.book import AlertBook
from plimsoll_alerts.reader import Reader
from plimsoll_cli.demo import servers
from plimsoll_cli.demo.servers import EmbeddedServer, ServerKind, running
from tests.deploy.rendering import named, templates
from tests.monitor.test_publisher import SNAPSHOT, entries, filled, publishing
from tests.placer.arrivals import report, taking_in
from tests.placer.extender.test_tls import authority
from tests.plimsoll_alerts.facts import A as A_GPU
from tests.plimsoll_alerts.facts import B as B_GPU
from tests.plimsoll_alerts.facts import Facts, ill
from tests.servers.stores import ignore
from tests.servers.waiting import PATIENCE_S, until, until_true

PASSWORDS = {
    f"{user}_PASSWORD": f"p{user.lower()}" for user in ("PLACER", "MONITOR", "OPERATOR", "ROUTE", "ALERTS")
}
NODES = (SNAPSHOT.node, "node-2.test")
FORGED = {"monitor": pod_subject("placed"), "operator": state_subject(NodeName("node-1"))}


@dataclass(frozen=True, slots=True)
class Bus:
    """The server as a user reaches it; it stands for an `EmbeddedServer`."""

    url: str


@dataclass(frozen=True, slots=True)
class Guarded:
    """The chart's NATS."""

    server: EmbeddedServer

    def of(self, user: str) -> EmbeddedServer:
        """The server for a user's clients."""
        url = self.server.url.replace("//", f"//{user}:{PASSWORDS[user.upper() + '_PASSWORD']}@")
        return Bus(url)  # type: ignore[return-value]  # nothing but its address is used


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[Guarded]:
    """NATS as the chart runs it."""
    async with nats_of({}, tmp_path) as server:
        yield Guarded(server)


@asynccontextmanager
async def nats_of(
    values: Mapping[str, Any], tmp_path: Path, change: Callable[[str], str] = str
) -> AsyncIterator[EmbeddedServer]:
    """NATS with the chart's configuration, but for its port, its folders, its port for health, and a change."""
    text = named(values, "ConfigMap", "plimsoll-nats")["data"]["nats.conf"]
    text = re.sub(r"^(host|port|http_port): .*\n", "", text, flags=re.MULTILINE)
    configuration = tmp_path / "nats.conf"
    text = text.replace("/data", str(tmp_path / "data")).replace("/etc/nats-tls", str(tmp_path))
    await asyncio.to_thread(configuration.write_text, change(text))

    def arguments(port: int, _: Path) -> Sequence[str]:
        return ("--config", str(configuration), "--addr", "127.0.0.1", "--port", str(port))

    environment = {**PASSWORDS, "POD_NAME": "plimsoll-nats-0"}
    kind = ServerKind("nats-server", "nats", "Server is ready", servers._nats_program, arguments, environment)
    async with running(kind, tmp_path / "server") as server:
        yield server


async def test_reports_pass_from_monitor_to_placer(
    guarded: Guarded, valkey: EmbeddedServer, tmp_path: Path
) -> None:
    """The monitor's publisher makes the stream, fills it, and finds its last report after a restart.

    The placer reads the reports. Each part uses its own password.
    """
    for start, known in (("first", []), ("second", [SNAPSHOT.epoch])):
        async with filled(tmp_path / start, entries(3)) as store:
            async with publishing(store, guarded.of("monitor").url) as (_, epochs):

                async def is_empty(store: Store = store) -> bool:
                    return store.waiting_count == 0

                await until(is_empty)
            assert epochs == known
    async with taking_in(guarded.of("placer"), valkey) as taking:
        await until(lambda: is_known(taking.decider.reports))


async def is_known(reports: object) -> bool:
    """Whether the placer has the node's report."""
    return SNAPSHOT.node in reports  # type: ignore[operator]


async def test_alerts_are_read_and_nothing_is_written(tmp_path: Path) -> None:
    """The service reads what the stream keeps and what comes, by its own user, which may publish no event."""
    node = Facts()
    values = {"alerts": {"enabled": True, "alertmanagerUrl": "http://h:9093"}}
    async with nats_of(values, tmp_path) as server:
        guarded = Guarded(server)
        reader = Reader(book := AlertBook(), guarded.of("alerts").url, BusAccess())
        reading = asyncio.create_task(reader.run())
        monitor = await nats_client.connect(guarded.of("monitor").url)
        alerts = await nats_client.connect(guarded.of("alerts").url, error_cb=ignore)
        try:
            await Stream().ensure(monitor.jetstream(timeout=PATIENCE_S))
            for gpu in (A_GPU, B_GPU):
                body = node.report(health=(ill(gpu),))
                await monitor.jetstream(timeout=PATIENCE_S).publish(node.subject(body), body)
                await until_true(lambda gpu=gpu: gpu in str(book.firing(reader.clock_s)))  # type: ignore[misc]
            before = (await alerts.jetstream().stream_info(STREAM)).state.messages
            forged = node.report()
            await alerts.publish(node.subject(forged), forged)
            await alerts.flush()
            assert (await alerts.jetstream().stream_info(STREAM)).state.messages == before
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            await monitor.close()
            await alerts.close()


@pytest.mark.parametrize("user", FORGED)
async def test_no_user_speaks_for_another(guarded: Guarded, user: str) -> None:
    """A monitor reports no placement, an operator reports for no node, and neither removes the stream."""
    problems: list[str] = []

    async def on_error(error: Exception) -> None:
        problems.append(str(error))

    listening = await nats_client.connect(guarded.of("placer").url)
    client = await nats_client.connect(guarded.of(user).url, error_cb=on_error)
    try:
        await Stream().ensure(listening.jetstream())
        heard = await listening.subscribe(">")
        await listening.flush()
        forged = (FORGED[user], f"$JS.API.STREAM.DELETE.{STREAM}", f"$JS.API.STREAM.PURGE.{STREAM}")
        for subject in forged:
            await client.publish(subject, b"{}")
        await client.flush()

        async def is_refused() -> bool:
            return sum("permissions violation" in one.lower() for one in problems) == 3

        await until(is_refused)
        await listening.publish("end", b"")
        while (subject := (await heard.next_msg(60)).subject) != "end":
            assert subject not in forged  # the server's own news of the stream may come late
        assert (await listening.jetstream().stream_info(STREAM)).config.name == STREAM
    finally:
        await close(client)
        await close(listening)


def of_nodes(text: str) -> str:
    """The chart's configuration with a user for each node in the place of `monitor`, as docs/security.md shows it."""
    [block] = re.findall(r"    \{\n      user: monitor,.*?\n    \}\n", text, re.DOTALL)
    users = ""
    for node in NODES:
        user = block.replace("user: monitor, password: $MONITOR_PASSWORD", f"user: {node}, password: p{node}")
        users += re.sub(r'"(plimsoll\.v1\.\w+)\.\*\.\*"', rf'"\1.*.{node_token(NodeName(node))}"', user)
    return text.replace(block, users)


async def test_a_password_for_each_node_keeps_nodes_apart(valkey: EmbeddedServer, tmp_path: Path) -> None:
    """Each monitor publishes under its own node's name, by its own user, and under no other.

    The server refuses the subject of another node, and the placer a report of another node on the own subject.
    """
    name, forged = SNAPSHOT.node, state_subject(NodeName(NODES[1]))
    assert name == NODES[0]
    path = tmp_path / "nats-url"
    problems: list[str] = []

    async def on_error(error: Exception) -> None:
        problems.append(str(error))

    async with nats_of({}, tmp_path, of_nodes) as server:
        await asyncio.to_thread(path.write_text, server.url.replace("//", f"//{name}:p{name}@") + "\n")
        given = {"PLIMSOLL_NODE": name, "PLIMSOLL_NATS_URL_FILE": str(path)}
        url = (await asyncio.to_thread(settings.load, given)).nats_url
        async with filled(tmp_path / "store", entries(1)) as store, publishing(store, url):
            await until_true(lambda: store.waiting_count == 0)
        client = await nats_client.connect(url, error_cb=on_error)
        try:
            async with taking_in(Guarded(server).of("placer"), valkey) as taking:
                await until(lambda: is_known(taking.decider.reports))
                body = report(NODES[1])
                event = encode("node.state", "forged", "/nodes/x", body.time, Report(state=body))
                await client.publish(forged, event)
                await client.publish(state_subject(NodeName(name)), event)
                await client.flush()
                await until_true(lambda: taking.metrics.reports.taken.labels("damaged")._value.get() == 1)
                assert set(taking.decider.reports) == {name}
            assert [one for one in problems if forged in one]
        finally:
            await close(client)


async def close(client: Client) -> None:
    """Close a connection; it may have been closed by its server."""
    async with asyncio.timeout(PATIENCE_S):
        await client.close()


@pytest.mark.parametrize("login", ["", "placer:wrong@", "monitor:pplacer@"])
async def test_nobody_comes_in_without_a_password(guarded: Guarded, login: str) -> None:
    """The server takes no client without a user's own password."""
    url = guarded.server.url.replace("//", f"//{login}")
    client = Client()  # `nats.connect` would leave its socket open
    try:
        with pytest.raises(nats.errors.Error, match=r"(?i)authorization|no servers"):
            await client.connect(url, allow_reconnect=False, max_reconnect_attempts=1)
    finally:
        await close(client)


def certified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the files of a TLS Secret for 127.0.0.1, and trust their authority as the chart has it trusted."""
    made = authority(tmp_path, "ca")
    for file, path in zip(("tls.crt", "tls.key"), made.sign("server", "server"), strict=True):
        Path(path).rename(tmp_path / file)
    monkeypatch.setenv("SSL_CERT_FILE", made.path)


async def test_nats_by_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `nats.tlsSecret`, the placer's client comes in by `tls://`, and nobody without TLS or the authority."""
    certified(tmp_path, monkeypatch)
    async with nats_of({"nats": {"tlsSecret": "tls"}}, tmp_path) as server:
        url = Guarded(server).of("placer").url.replace("nats://", "tls://")
        client = Client()
        try:
            await connect(client, url, "placer")
            assert client.is_connected
            await Stream().ensure(client.jetstream())
        finally:
            await close(client)
        monkeypatch.delenv("SSL_CERT_FILE")
        # A process of its own: after a failed handshake, nats-py's client cannot be closed.
        program = f"import asyncio, nats; asyncio.run(nats.connect({url!r}, allow_reconnect=False))"
        stranger = await asyncio.create_subprocess_exec(
            sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        output, _ = await stranger.communicate()
        assert stranger.returncode != 0
        assert b"CERTIFICATE_VERIFY_FAILED" in output


async def test_valkey_by_password(tmp_path: Path) -> None:
    """The placer's client comes in with the password, and nobody without. PyPI's Valkey has no TLS to try."""
    [container] = dict(templates({}))["plimsoll-redis"]["spec"]["containers"]

    def arguments(port: int, directory: Path) -> Sequence[str]:
        given = {"$(REDIS_PASSWORD)": "pw", "6379": str(port), "/tmp": str(directory)}  # noqa: S108 - in the pod
        return [given.get(one, one) for one in container["args"]]

    kind = ServerKind("valkey", "redis", "Ready to accept connections", servers._valkey_program, arguments)
    async with running(kind, tmp_path / "server") as server:
        for login, comes_in in ((":pw@", True), ("", False), (":wrong@", False)):
            url = server.url.replace("//", f"//{login}")
            client = open_redis(url, timeout_s=PATIENCE_S, connections=1)
            try:
                if comes_in:
                    assert await client.set("key", "value")
                else:
                    with pytest.raises(AuthenticationError):
                        await client.set("key", "value")
            finally:
                await client.aclose()
