"""No password of a server stands in the log of a part, or in what it serves: connected, refused, and in an outage."""

import asyncio
import contextlib
import json
import os
import re
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import aiohttp
import pytest

from plimsoll_cli.demo import servers
from plimsoll_cli.demo.servers import EmbeddedServer, ServerKind, running
from tests.monitor.harness import monitoring
from tests.placer.test_app import NODE_WITHOUT_BROKER
from tests.servers.waiting import until

SECRET = "open-sesame-73"  # noqa: S105 - of servers of this test
WRONG = "close-sesame-37"


@contextlib.asynccontextmanager
async def locked(directory: Path) -> AsyncIterator[tuple[EmbeddedServer, EmbeddedServer]]:
    """NATS and Valkey with a password."""

    def nats_arguments(port: int, place: Path) -> list[str]:
        return [*servers._nats_arguments(port, place), "--user", "plimsoll", "--pass", SECRET]

    def valkey_arguments(port: int, place: Path) -> list[str]:
        return [*servers._valkey_arguments(port, place), "--requirepass", SECRET]

    nats = ServerKind("nats-server", "nats", "Server is ready", servers._nats_program, nats_arguments)
    ready = "Ready to accept connections"
    valkey = ServerKind("valkey-server", "redis", ready, servers._valkey_program, valkey_arguments)
    async with running(nats, directory / "nats") as one, running(valkey, directory / "valkey") as other:
        yield one, other


@contextlib.asynccontextmanager
async def placer(log: Path, settings: Mapping[str, str]) -> AsyncIterator[None]:
    """A placer of local nodes, whose log is in a file."""
    nodes = log.with_name("nodes.json")
    await asyncio.to_thread(nodes.write_text, json.dumps([NODE_WITHOUT_BROKER]))
    given = {
        "LOCAL_NODES": str(nodes),
        "HTTP_PORT": "0",
        "LOG_LEVEL": "debug",
    }
    given |= settings
    environment = {"PATH": os.environ["PATH"], **{f"PLIMSOLL_{key}": value for key, value in given.items()}}
    with log.open("wb") as file:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "placer", env=environment, stderr=file
        )
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def logged(log: Path, pattern: str) -> str:
    """Wait for a line of a log that matches a pattern, and return the line."""

    async def look() -> str | None:
        *whole, _ = (await asyncio.to_thread(log.read_text)).split("\n")
        return next((line for line in whole if re.search(pattern, line)), None)

    line = await until(look)
    assert line is not None
    return line


async def served(port: int) -> str:
    """All that a placer answers to anybody who asks."""
    texts = []
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
        for path in ("/metrics", "/v1/state", "/v1/nodes", "/readyz", "/healthz", "/"):
            async with session.get(path) as answer:
                texts.append(await answer.text())
    return "".join(texts)


@pytest.mark.parametrize("word", [SECRET, WRONG])
async def test_no_password_is_told(tmp_path: Path, word: str) -> None:
    """Placer and monitor at the finest level of log: connected, refused by a wrong password, and in an outage."""
    log = tmp_path / "placer.log"
    async with contextlib.AsyncExitStack() as stack:
        async with locked(tmp_path / "servers") as (nats, valkey):
            nats_url = nats.url.replace("//", f"//plimsoll:{word}@")
            urls = {"NATS_URL": nats_url, "REDIS_URL": valkey.url.replace("//", f"//:{word}@")}
            await stack.enter_async_context(placer(log, urls))
            monitor = await stack.enter_async_context(monitoring(tmp_path / "monitor", nats_url))
            port = json.loads(await logged(log, "http ready"))["port"]
            if word == SECRET:
                await logged(log, "the last reports are read")
                await logged(monitor.log_path, '"publishing"')
            else:
                await logged(log, "the user or password is refused")
                await logged(monitor.log_path, "the user or password is refused")
            assert word not in await served(port)
        await logged(log, "nats is out of reach")
        await logged(monitor.log_path, "events wait on disk")
        assert word not in await served(port)
    for path in (log, monitor.log_path):
        assert word not in await asyncio.to_thread(path.read_text)
