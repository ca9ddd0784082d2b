"""`plimsoll events` prints the stream, against a real NATS."""

import asyncio
import contextlib
import json
import os
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import nats as nats_client
import pytest

from plimsoll.asyncapi import KINDS, EventKind
from plimsoll.bus.access import BusAccess
from plimsoll.bus.stream import Stream
from plimsoll_cli import events
from plimsoll_cli.demo.servers import EmbeddedServer
from plimsoll_cli.events import line
from tests import cloudevents
from tests.plimsoll.test_golden_events import NODE, POD, message
from tests.servers.waiting import PATIENCE_S

ROOT = Path(__file__).parents[2]


async def publish_all(url: str) -> None:
    """Publish one event of each sort, and a stranger's message."""
    client = await nats_client.connect(url)
    try:
        jetstream = client.jetstream()
        await Stream().ensure(jetstream)
        for kind in KINDS:
            subject = kind.subject.replace("{node}", NODE.replace(".", "_"))
            await jetstream.publish(subject, message(kind))
        await jetstream.publish("plimsoll.v1.pod.placed", b"no event")
    finally:
        await client.close()


@contextlib.asynccontextmanager
async def running(url: str, *words: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """The command as a process, killed when the context ends."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "plimsoll", "events", "--nats-url", url, *words),
        cwd=ROOT,
        env={"PATH": os.environ["PATH"]},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.communicate()


async def types(url: str, *words: str) -> list[str]:
    """The types of the events that the command prints as JSON; a stranger reads each of them."""
    async with running(url, "-o", "json", *words) as process, asyncio.timeout(PATIENCE_S):
        printed, problems = await process.communicate()
    assert process.returncode == 0, problems.decode()
    events = [cloudevents.read(each) for each in printed.splitlines()]
    return [each.get_type().removeprefix("dev.plimsoll.").removesuffix(".v1") for each in events]


async def test_stored_events_are_printed_in_order_and_by_choice(nats: EmbeddedServer) -> None:
    """Without --follow the command prints what the stream keeps, and each option leaves out the others."""
    await publish_all(nats.url)
    every = [kind.what for kind in KINDS]
    assert await types(nats.url) == every
    assert await types(nats.url, "--type", "limit") == [each for each in every if each.startswith("limit.")]
    assert await types(nats.url, "--type", "pod.placed", "--node", NODE) == ["pod.placed"]
    assert await types(nats.url, "--node", "another") == []
    assert await types(nats.url, "--pod", POD, "--type", "task") == [
        "task.started", "task.loaded", "task.exited",
    ]  # fmt: skip
    assert await types(nats.url, "--pod", "trainer") == [each for each in every if each.startswith("pod.")]


async def test_following_prints_new_events_over_a_restart_of_nats(own_nats: EmbeddedServer) -> None:
    """With --follow the command prints what comes from now on, each event once, also after NATS restarted."""
    client = await nats_client.connect(own_nats.url)
    await Stream().ensure(client.jetstream())
    await client.close()
    async with running(own_nats.url, "--follow", "-o", "json", "--type", "task") as process:
        assert process.stdout is not None
        lines: list[bytes] = []
        for expected in (3, 6):
            # Nothing says when the command has begun to follow. So the events are published until it prints some.
            async with asyncio.timeout(PATIENCE_S):
                while len(lines) < expected:
                    await publish_all(own_nats.url)
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(2):
                            while len(lines) < expected:
                                lines.append(await process.stdout.readline())
            await own_nats.kill()
            await own_nats.start()
        assert len(lines) == 6
        assert all(json.loads(each)["type"].startswith("dev.plimsoll.task.") for each in lines)


@pytest.mark.parametrize(
    ("words", "code", "problem"),
    [
        (("--type", "task.begun"), 2, "task.begun"),
        (("--nats-url", "nats://127.0.0.1:1"), 1, "does not answer"),
        ((), 1, "has no stream PLIMSOLL: nobody has made it yet"),
    ],
)
async def test_what_cannot_be_printed_is_named(
    nats: EmbeddedServer, words: tuple[str, ...], code: int, problem: str
) -> None:
    """A type that is none, a server that is away, and a bus without the stream are named in one line."""
    async with running(nats.url, *words) as process, asyncio.timeout(PATIENCE_S):
        printed, problems = await process.communicate()
    assert (process.returncode, printed) == (code, b"")
    assert problem in problems.decode()


@pytest.mark.parametrize("greeting", [b"", b"INFO {}\r\n", b"INFO []\r\n", b"SSH-2.0-OpenSSH\r\n"])
async def test_a_server_that_is_no_nats_is_named(greeting: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a server says first, and though it only echoes from then on, the command ends with its address."""
    monkeypatch.setattr(events, "CONNECT_S", 1.0)  # it has twice that

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting)
        while data := await reader.read(100):
            writer.write(data)
        writer.close()

    async with await asyncio.start_server(echo, "127.0.0.1", 0) as server, asyncio.timeout(PATIENCE_S):
        url = f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(events.NoEventsError, match=f"NATS at {url} (does not answer|has no stream)"):
            await anext(events.events(url, events.EventFilter(), BusAccess(), follow=False))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.what)
def test_a_line_names_time_type_and_place(kind: EventKind) -> None:
    """Each sort of event is one line with its time, its type, and its node or pod."""
    text = line(message(kind))
    place = "team-a/trainer" if text.split()[1].startswith("pod.") else "node-1.test"
    assert text.split()[:3] == ["2026-01-01T00:00:00.5Z", kind.what, place]
    assert "None" not in text


@pytest.mark.parametrize(
    ("what", "words"), [("gpu.health", "GPU-.* healthy -> fatal"), ("gpu.pressure", "GPU-.* short: .* free")]
)
def test_the_line_of_a_gpus_event_names_gpu_and_change(what: str, words: str) -> None:
    """The line of an event shows which GPU is unwell, and why."""
    text = line(message(next(kind for kind in KINDS if kind.what == what)))
    assert re.search(words, text), text


@pytest.mark.parametrize(
    "data",
    [[], {}, {"task": {"pid": 1}, "node": "n"}, {"task": 7, "node": "n"}, {"state": 3}, {"namespace": "a"}],
    ids=str,
)
def test_a_forged_event_is_a_line_too(data: object) -> None:
    """Data that is no event's is named so in the event's line, and ends nothing."""
    kind = next(kind for kind in KINDS if kind.what == "task.started")
    forged = json.dumps(json.loads(message(kind)) | {"data": data}).encode()
    text = line(forged)
    assert text.split()[1] == "task.started"
    assert "its data is not that of such an event" in text
