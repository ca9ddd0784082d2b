"""The subscribers in docs/examples run as they stand, against a real NATS."""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator

import nats as nats_client
import pytest
from nats.aio.client import Client

from plimsoll.asyncapi import KINDS
from plimsoll.bus.stream import Stream
from plimsoll_cli.demo.servers import EmbeddedServer
from tests.docs.subscribers import EXAMPLES, IN_GO, ROOT
from tests.plimsoll.test_golden_events import UUID, message
from tests.servers.waiting import PATIENCE_S

[LOADED] = [kind for kind in KINDS if kind.what == "task.loaded"]


@contextlib.asynccontextmanager
async def running(*words: str, **environment: str) -> AsyncIterator[asyncio.StreamReader]:
    """The output of a program, which is killed when the context ends."""
    process = await asyncio.create_subprocess_exec(
        *words, env={"PATH": os.environ["PATH"], **environment}, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        yield process.stdout
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.communicate()


async def test_the_subscriber_in_python(nats: EmbeddedServer) -> None:
    """It prints an event that was published before it started, and one that came later."""
    client = await nats_client.connect(nats.url)
    try:
        await Stream().ensure(client.jetstream())
        subject = "plimsoll.v1.task.loaded.node-1_test"
        await client.jetstream().publish(subject, message(LOADED))
        async with running(sys.executable, str(EXAMPLES / "subscriber.py"), NATS_URL=nats.url) as output:
            for _ in range(2):
                async with asyncio.timeout(PATIENCE_S):
                    line = (await output.readline()).decode()
                assert line == f"dev.plimsoll.task.loaded.v1 /nodes/node-1.test {UUID}\n"
                await client.jetstream().publish(subject, message(LOADED))
    finally:
        await client.close()


@pytest.mark.slow
async def test_the_subscriber_in_go(nats: EmbeddedServer) -> None:
    """It prints each sort of event, also those that JetStream's headers come with."""
    assert IN_GO.exists(), f"{IN_GO} is missing; remedy: make {IN_GO.relative_to(ROOT)}"
    client = await nats_client.connect(nats.url)
    try:
        address = nats.url.removeprefix("nats://")
        async with running(str(IN_GO), address) as output:
            for kind in KINDS:
                subject = kind.subject.replace("{node}", "node-1_test")
                line = await first_line(client, subject, message(kind), output)
                source = "/nodes/node-1.test" if kind.of_node else "/placer"
                assert line == f"dev.plimsoll.{kind.what}.v1 {source} id-of-{kind.what}\n"
    finally:
        await client.close()


async def first_line(client: Client, subject: str, body: bytes, output: asyncio.StreamReader) -> str:
    """Publish an event until the subscriber has printed it: nothing says when it has subscribed."""
    name = body.partition(b'"id":"')[2].partition(b'"')[0]
    async with asyncio.timeout(PATIENCE_S):
        while True:
            await client.publish(subject, body, headers={"Nats-Msg-Id": name.decode()})
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1):
                    while not (line := await output.readline()).endswith(b" " + name + b"\n"):
                        pass
                    return line.decode()
