"""`plimsoll alerts` between a real NATS and Debian's Alertmanager."""

import asyncio
import contextlib
import os
import signal
import ssl
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import aiohttp
import nats as nats_client
import pytest
from aiohttp import web
from nats.aio.client import Client

from plimsoll.bus.stream import Stream
from plimsoll.part.web import serving_tcp
from plimsoll_alerts.app import run
from plimsoll_alerts.settings import load
from plimsoll_cli.demo.servers import EmbeddedServer
from tests.logs import capture_logs
from tests.placer.extender.test_tls import authority
from tests.plimsoll_alerts.facts import GIB, A, B, Facts, ill, task
from tests.servers.alertmanager import alertmanager, alerts, until_firing
from tests.servers.stores import ignore
from tests.servers.waiting import PATIENCE_S, until, until_true

USER, PASSWORD = "plimsoll", "one secret"
BCRYPT = "$2b$04$aCqrgjx/HARAuf8JOMR6Su2kRFcyUhtH9Exr3PuKAi4BSizZbfvOO"  # of PASSWORD, by crypt(3)


@pytest.fixture
async def manager(tmp_path: Path) -> AsyncIterator[EmbeddedServer]:
    """An Alertmanager without alerts."""
    async with alertmanager(tmp_path / "alertmanager") as server:
        yield server


@contextlib.asynccontextmanager
async def service(nats_url: str, *managers: str, **settings: str) -> AsyncIterator[asyncio.Event]:
    """The service until the context ends; it sends firing alerts again each second."""
    own = {"alertmanager_url": ",".join(managers), "resend_s": "1"} | settings
    named = {f"PLIMSOLL_ALERTS_{name.upper()}": value for name, value in own.items()}
    stop = asyncio.Event()
    given = await asyncio.to_thread(load, {"PLIMSOLL_NATS_URL": nats_url, **named})
    task = asyncio.create_task(run(given, stop))
    try:
        yield stop
    finally:
        stop.set()
        async with asyncio.timeout(PATIENCE_S):
            await task


class Bus:
    """A publisher of events into the stream."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def publish(self, facts: Facts, *bodies: bytes) -> None:
        """Publish these events, in order."""
        for body in bodies:
            await self._client.jetstream(timeout=PATIENCE_S).publish(facts.subject(body), body)


@contextlib.asynccontextmanager
async def publishing(server: EmbeddedServer) -> AsyncIterator[Bus]:
    """A bus with the stream."""
    client = await nats_client.connect(server.url, error_cb=ignore, max_reconnect_attempts=-1)
    try:
        await Stream().ensure(client.jetstream(timeout=PATIENCE_S))
        yield Bus(client)
    finally:
        await client.close()


async def test_states_fire_until_they_end(nats: EmbeddedServer, manager: EmbeddedServer) -> None:
    """Each of them, whether it began before the service or after it; a fact that is published twice is one alert."""
    node = Facts()
    async with publishing(nats) as bus:
        running = task(71, 4 * GIB)
        await bus.publish(node, node.report(running, health=(ill(B),)))
        async with service(nats.url, manager.url, labels="cluster=west"):
            found = await until_firing(manager.url, "PlimsollGpuFatal GPU-b")
            assert found["PlimsollGpuFatal GPU-b"]["labels"] == {
                "alertname": "PlimsollGpuFatal",
                "severity": "critical",
                "cluster": "west",
                "node": "node-1",
                "gpu": "GPU-b",
                "model": "NVIDIA L4",
            }
            over = node.limit("violated", line_bytes=GIB)
            await bus.publish(node, over, over, node.foreign())
            names = ["PlimsollForeignMonitor node-1", "PlimsollGpuFatal GPU-b", "PlimsollLimitViolated main"]
            await until_firing(manager.url, *names)
            await bus.publish(node, node.report(running, short=(A,)))
            await until_firing(manager.url, names[0], names[2], "PlimsollGpuPressure GPU-a")
            await bus.publish(node, node.report())
            await until_firing(manager.url, names[0])


async def test_a_service_that_starts_again_fires_the_same(
    nats: EmbeddedServer, manager: EmbeddedServer
) -> None:
    """Alertmanager sees the same alerts, from the same time on; so does one that knows nothing yet."""
    node = Facts()
    names = ("PlimsollGpuFatal GPU-b", "PlimsollLimitUnenforced main")
    async with publishing(nats) as bus:
        await bus.publish(node, node.report(task(71), health=(ill(B),)), node.limit("unenforced", pid=71))
        async with service(nats.url, manager.url):
            before = await until_firing(manager.url, *names)
        await manager.kill()
        await manager.restart()
        async with service(nats.url, manager.url):
            after = await until_firing(manager.url, *names)
        for name in names:
            for field in ("fingerprint", "startsAt", "labels"):
                assert before[name][field] == after[name][field]


async def test_nats_may_be_killed(own_nats: EmbeddedServer, manager: EmbeddedServer) -> None:
    """Its outage ends no alert, and what comes after it is read."""
    node = Facts(heartbeat_s=0.5)
    resting = Facts("node-2")
    async with publishing(own_nats) as bus:
        await bus.publish(resting, resting.report(health=(ill(),)))
        async with service(own_nats.url, manager.url):
            await until_firing(manager.url, "PlimsollGpuFatal GPU-a")
            await own_nats.kill()
            await own_nats.restart()
            await bus.publish(resting, resting.report(health=(ill(),), short=(B,)))
            await until_firing(manager.url, "PlimsollGpuFatal GPU-a", "PlimsollGpuPressure GPU-b")
            await bus.publish(node, node.report())
            silent = ("PlimsollNodeSilent node-1", "PlimsollGpuFatal GPU-a", "PlimsollGpuPressure GPU-b")
            await until_firing(manager.url, *silent)
            # A node that was silent before an outage is silent after it, until it reports.
            await own_nats.kill()
            await own_nats.restart()
            await bus.publish(resting, resting.report())
            await until_firing(manager.url, silent[0])
            node.heartbeat_s = 3600
            await bus.publish(node, node.report())
            await until_firing(manager.url)


async def test_an_alertmanager_that_is_away_gets_all_when_it_is_back(
    nats: EmbeddedServer, manager: EmbeddedServer
) -> None:
    """The log names it once, another one gets its alerts meanwhile, and one that restarts gets them again."""
    node = Facts()
    async with alertmanager(manager.directory / "second") as second, publishing(nats) as bus:
        await manager.kill()
        with capture_logs() as logs:
            async with service(nats.url, manager.url, second.url):
                await bus.publish(node, node.report(health=(ill(),)))
                await until_firing(second.url, "PlimsollGpuFatal GPU-a")
                await bus.publish(node, node.report(health=(ill(),), short=(B,)))
                await until_firing(second.url, "PlimsollGpuFatal GPU-a", "PlimsollGpuPressure GPU-b")
                await bus.publish(node, node.report(short=(B,)))
                await until_firing(second.url, "PlimsollGpuPressure GPU-b")
                await until_true(lambda: [one for one in logs if "alerts wait" in one["event"]])
                await manager.restart()
                await until_firing(manager.url, "PlimsollGpuPressure GPU-b")
                await second.kill()
                await second.restart()
                await until_firing(second.url, "PlimsollGpuPressure GPU-b")
    told = [one for one in logs if "alerts wait" in one["event"] and one["alertmanager"] == manager.url]
    assert len(told) == len({one["error"] for one in told})
    assert any("nothing listens there" in one["error"] for one in told)


async def test_tls_and_a_password(nats: EmbeddedServer, tmp_path: Path) -> None:
    """A wrong password is logged with its remedy, and works once its file is corrected, without a restart."""
    made = await asyncio.to_thread(authority, tmp_path, "authority")
    certificate, key = await asyncio.to_thread(made.sign, "alertmanager", "alertmanager")
    configuration = tmp_path / "web.yml"
    tls = f"tls_server_config: {{cert_file: {certificate}, key_file: {key}}}"
    text = f"{tls}\nbasic_auth_users: {{{USER}: {BCRYPT!r}}}\n"
    await asyncio.to_thread(configuration.write_text, text)
    password = tmp_path / "password"
    await asyncio.to_thread(password.write_text, "another\n")
    node = Facts()
    async with (
        alertmanager(tmp_path / "alertmanager", f"--web.config.file={configuration}") as guarded,
        publishing(nats) as bus,
    ):
        url = guarded.url.replace("http://", "https://")
        await bus.publish(node, node.report(short=(A,)))
        with capture_logs() as logs:
            identity = {"ca": made.path, "user": USER, "password_file": str(password)}
            async with service(nats.url, url, **identity):
                await until_true(lambda: [one for one in logs if "answered 401" in one.get("error", "")])
                await asyncio.to_thread(password.write_text, f"{PASSWORD}\n")
                options = {
                    "ssl": await asyncio.to_thread(ssl.create_default_context, cafile=made.path),
                    "headers": {"Authorization": aiohttp.encode_basic_auth(USER, PASSWORD)},
                }
                await until_firing(url, "PlimsollGpuPressure GPU-a", **options)
        assert not [one for one in logs if PASSWORD in str(one) or "another\n" in str(one)]


async def test_a_token_is_sent(nats: EmbeddedServer, tmp_path: Path) -> None:
    """Alertmanager itself knows no tokens; a proxy before it does. Redirects are not followed with the token."""
    seen: list[tuple[str, str]] = []

    async def proxy(request: web.Request) -> web.Response:
        seen.append((request.path, request.headers.get("Authorization", "")))
        raise web.HTTPFound("/elsewhere")

    token = tmp_path / "token"
    await asyncio.to_thread(token.write_text, "t0ken\n")
    routes = [web.post("/prefix/api/v2/alerts", proxy), web.get("/elsewhere", proxy)]
    node = Facts()
    async with serving_tcp(routes, "127.0.0.1", 0, "PORT") as port, publishing(nats) as bus:
        await bus.publish(node, node.report(short=(A,)))
        async with service(nats.url, f"http://127.0.0.1:{port}/prefix/", token_file=str(token)):
            await until_true(lambda: len(seen) > 1)
    assert set(seen) == {("/prefix/api/v2/alerts", "Bearer t0ken")}


async def test_the_command(nats: EmbeddedServer, manager: EmbeddedServer) -> None:
    """`plimsoll alerts` serves metrics, is ready once the stream is read, and ends with 0 at SIGTERM."""
    node = Facts()
    environment: Mapping[str, str] = {
        "PATH": os.environ["PATH"],
        "PLIMSOLL_NATS_URL": nats.url,
        "PLIMSOLL_ALERTS_ALERTMANAGER_URL": manager.url,
        "PLIMSOLL_ALERTS_HTTP_PORT": "0",
    }
    command = (sys.executable, "-m", "plimsoll", "alerts")
    async with publishing(nats) as bus:
        await bus.publish(node, node.report(short=(A,)))
        process = await asyncio.create_subprocess_exec(
            *command, env=environment, stderr=asyncio.subprocess.PIPE
        )
        try:
            await until_firing(manager.url, "PlimsollGpuPressure GPU-a")
            assert process.stderr is not None
            port = ""
            async with asyncio.timeout(PATIENCE_S):
                while not port:
                    line = (await process.stderr.readline()).decode()
                    port = line.partition('"port": ')[2].partition(",")[0].strip("} \n")
            async with aiohttp.ClientSession() as session:
                assert (await session.get(f"http://127.0.0.1:{port}/readyz")).status == 200

                async def counted() -> bool:
                    text = await (await session.get(f"http://127.0.0.1:{port}/metrics")).text()
                    return 'plimsoll_alerts_firing{alertname="PlimsollGpuPressure"} 1.0' in text

                await until(counted)
            process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(PATIENCE_S):
                await process.communicate()
            assert process.returncode == 0
        finally:
            if process.returncode is None:
                process.kill()
                await process.communicate()
    assert "PlimsollGpuPressure GPU-a" in await alerts(manager.url)  # until its end time
