"""The checks of NATS, each against a real server that is broken in one way."""

import re
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import nats as nats_client
import pytest
from nats.js.api import DiscardPolicy, StreamConfig

from plimsoll.bus.access import BusAccess
from plimsoll.bus.stream import Stream
from plimsoll.bus.subjects import STREAM
from plimsoll.events import NodeState
from plimsoll.gpu_events import Condition, GpuHealth, HealthClass
from plimsoll.ids import GpuUuid
from plimsoll_cli.demo import servers
from plimsoll_cli.demo.servers import EmbeddedServer, ServerKind, running
from plimsoll_cli.doctor import bus as checks
from plimsoll_cli.doctor.bus import bus
from plimsoll_cli.doctor.finding import Finding, Verdict
from tests.deploy.test_servers import Guarded, nats_of
from tests.placer import arrivals
from tests.plimsoll_cli.doctor.findings import found, of, verdicts
from tests.servers.waiting import until

HOUR = timedelta(hours=1)


def report(node: str, *, by: timedelta = timedelta(), heartbeat_s: float = 3600.0) -> NodeState:
    """A report that is made now, by a clock that is wrong `by` this much."""
    made = (datetime.now(UTC) + by).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return msgspec.structs.replace(arrivals.report(node), time=made, heartbeat_s=heartbeat_s)


async def examined(server: EmbeddedServer, *states: NodeState) -> list[Finding]:
    """The findings after these reports."""
    async with arrivals.bus(server) as jetstream:
        await arrivals.publish(jetstream, *states)
    return await found(bus(server.url, BusAccess()))


@asynccontextmanager
async def nats_with(directory: Path, *options: str) -> AsyncIterator[EmbeddedServer]:
    """A NATS server with these options."""

    def arguments(port: int, _: Path) -> Sequence[str]:
        return ("--addr", "127.0.0.1", "--port", str(port), *options)

    kind = ServerKind("nats-server", "nats", "Server is ready", servers._nats_program, arguments)
    async with running(kind, directory) as server:
        yield server


async def test_a_bus_that_works(nats: EmbeddedServer) -> None:
    """Nodes that report, one of them with several reports on different subjects, are all that is found."""
    async with arrivals.bus(nats) as jetstream:
        await arrivals.publish(jetstream, report("n1"), what="started")
    findings = await examined(nats, msgspec.structs.replace(report("n1"), seq=2), report("n2"))
    assert set(verdicts(findings).values()) == {"ok"}
    assert of(findings, "reports").text == "nodes that report: 2, with 2 GPUs"


async def test_without_an_address_the_bus_is_skipped() -> None:
    """No address is no failure, and the remedy names the option."""
    [one] = await found(bus("", BusAccess()))
    assert (one.verdict, "--nats-url" in one.remedy) == (Verdict.SKIPPED, True)


async def test_no_server_and_a_url_that_is_none() -> None:
    """A port on which nothing listens, and a text that is no URL, are failures of `nats` alone."""
    [one] = await found(bus("nats://127.0.0.1:1", BusAccess()))
    assert (one.check, one.verdict) == ("nats", Verdict.FAILED)
    assert "nothing listens there" in one.text
    assert one.remedy.startswith("start the server, or correct the address in --nats-url")
    [one] = await found(bus("http://h", BusAccess()))
    assert one.text.endswith("is no URL of such a server")
    assert one.remedy.startswith("begin it with nats://")


async def test_a_wrong_password_and_a_missing_right(tmp_path: Path) -> None:
    """A refused login and a refused request are named as such, with the option that has the user."""
    config = tmp_path / "nats.conf"
    config.write_text(
        f'jetstream {{store_dir: "{tmp_path}/store"}}\n'
        "authorization {users: [{user: reader, password: secret, permissions: {publish: [none]}}]}\n"
    )
    async with nats_with(tmp_path / "nats", "--config", str(config)) as server:
        [one] = await found(bus(server.url.replace("//", "//reader:wrong-secret@"), BusAccess()))
        assert "the user or password is refused" in one.text
        assert one.remedy == "mend it in --nats-url or PLIMSOLL_NATS_URL"
        login, right = await found(bus(server.url.replace("//", "//reader:secret@"), BusAccess()))
        assert (login.verdict, right.verdict) == (Verdict.OK, Verdict.FAILED)
        assert "too few rights" in right.text
        assert right.remedy == "give them to the user in --nats-url or PLIMSOLL_NATS_URL"


async def test_a_server_without_jetstream_and_one_without_the_stream(
    tmp_path: Path, nats: EmbeddedServer
) -> None:
    """Both lack the stream, and the remedies differ."""
    async with nats_with(tmp_path / "nats") as server:
        one = of(await found(bus(server.url, BusAccess())), "stream")
        assert (one.text, one.verdict) == ("this NATS server has no JetStream", Verdict.FAILED)
    one = of(await found(bus(nats.url, BusAccess())), "stream")
    assert one.text.startswith("there is no stream PLIMSOLL")
    assert one.remedy.startswith("start a placer or a monitor")


async def test_no_monitor_has_ever_reported(nats: EmbeddedServer) -> None:
    """An empty stream means that no pod can be placed."""
    one = of(await examined(nats), "reports")
    assert (one.verdict, "no node has ever reported" in one.text) == (Verdict.FAILED, True)


async def test_a_monitor_that_is_silent_is_named(nats: EmbeddedServer) -> None:
    """A node that owes three heartbeats is named, and the others are counted."""
    await examined(nats, report("dead", heartbeat_s=0.01), report("alive"))

    async def is_silent() -> bool:
        one = of(await found(bus(nats.url, BusAccess())), "reports")
        return one.verdict is Verdict.FAILED and one.text.startswith("1 of 2 nodes are silent")

    await until(is_silent)
    one = of(await found(bus(nats.url, BusAccess())), "reports")
    assert "dead (for " in one.text
    assert "alive" not in one.text
    assert "-l app=plimsoll-monitor" in one.remedy


async def test_clocks_of_nodes(nats: EmbeddedServer) -> None:
    """A clock an hour ahead is certain. A report that is an hour late may have waited, and the remedy says both."""
    findings = await examined(nats, report("fast", by=HOUR), report("slow", by=-HOUR), report("right"))
    fast, slow = [one for one in findings if one.check == "clocks"]
    assert fast.text.startswith("clocks ahead of that of NATS: fast (3")
    assert slow.text.startswith("reports that came late: slow (3")
    assert (fast.verdict, slow.verdict) == (Verdict.WARNING, Verdict.WARNING)
    assert "outbox" in slow.remedy


@pytest.mark.parametrize(("wrong_s", "text"), [(3600, "3600 s ahead of"), (-3600, "3600 s behind"), (5, "")])
def test_the_clock_of_this_machine(wrong_s: int, text: str) -> None:
    """A difference that the way of the answer explains is none."""
    now = datetime.now(UTC)
    asked = now + timedelta(seconds=wrong_s)
    one = checks._own_clock(now, asked, asked)
    assert (one.verdict is Verdict.WARNING, text in one.text) == (bool(text), True)
    assert checks._own_clock(now, now - HOUR, now + HOUR).verdict is Verdict.OK


async def test_what_the_reports_say_of_brokers_and_gpus(nats: EmbeddedServer) -> None:
    """A node without its broker, and a GPU that fails, are named with their remedies."""
    text = "GPU has fallen off the bus"
    fatal = Condition(what="xid", health=HealthClass.FATAL, since="2026-01-01T00:00:00Z", text=text, xid=79)
    health = GpuHealth(
        gpu=GpuUuid("GPU-1"),
        index=0,
        model="L4",
        health=HealthClass.FATAL,
        since=fatal.since,
        conditions=(fatal,),
    )
    state = msgspec.structs.replace(report("n1"), broker_away_since="2026-01-01T00:00:00Z", health=(health,))
    findings = await examined(nats, state)
    assert of(findings, "brokers").text == "no broker on n1 (since 2026-01-01T00:00:00Z)"
    assert of(findings, "gpus").text == f"fatal: n1 GPU-1 ({text})"
    assert of(findings, "gpus").remedy.startswith("drain the node")


async def test_the_server_says_its_version(nats: EmbeddedServer) -> None:
    """The version is a number, as in docs/doctor.md, for people and for scripts."""
    text = of(await examined(nats, report("n1")), "nats").text
    assert re.fullmatch(r"answers, version \d+\.\d+\.\d+\S*", text), text


async def test_a_strangers_message_is_left_out(nats: EmbeddedServer) -> None:
    """A message on a subject of reports that is no report neither counts nor ends the check."""
    async with arrivals.bus(nats):
        client = await nats_client.connect(nats.url)
        await client.jetstream().publish("plimsoll.v1.node.state.stranger", b"hello")
        await client.close()
    assert of(await examined(nats, report("n1")), "reports").text == "nodes that report: 1, with 1 GPUs"


async def test_a_server_that_takes_the_connection_and_says_nothing() -> None:
    """The command ends, and says that there was no answer."""
    with socket.create_server(("127.0.0.1", 0)) as mute:
        [one] = await found(bus(f"nats://127.0.0.1:{mute.getsockname()[1]}", BusAccess()))
    assert (one.check, one.verdict) == ("nats", Verdict.FAILED)
    assert "no answer in time" in one.text


async def test_the_users_of_the_charts_bus(tmp_path: Path) -> None:
    """The placer's user may read all that the checks need."""
    async with nats_of({}, tmp_path) as server:
        guarded = Guarded(server)
        async with arrivals.bus(guarded.of("monitor")) as jetstream:
            await arrivals.publish(jetstream, report("n1"))
        findings = await found(bus(guarded.of("placer").url, BusAccess()))
    assert set(verdicts(findings).values()) == {"ok"}, findings


async def test_a_stream_that_keeps_events_out(own_nats: EmbeddedServer) -> None:
    """An operator's stream whose limits or subjects would make nodes fall silent, each with its remedy."""
    client = await nats_client.connect(own_nats.url)
    try:
        config = StreamConfig(
            name=STREAM, subjects=["other.>"], discard=DiscardPolicy.NEW, max_msg_size=1000, max_bytes=2**20
        )
        await client.jetstream().add_stream(config)
    finally:
        await client.close()
    findings = [one for one in await found(bus(own_nats.url, BusAccess())) if one.verdict is Verdict.FAILED]
    remedies = [one.remedy for one in findings if one.check == "stream"]
    for option in ("--subjects=", "--discard=old", "--max-msg-size=-1"):
        assert any(option in remedy for remedy in remedies), option


async def test_a_server_that_takes_short_messages_alone(tmp_path: Path) -> None:
    """A `max_payload` below the length of events is named."""
    configuration = tmp_path / "nats.conf"
    configuration.write_text("max_payload: 1000\n")
    store = str(tmp_path / "store")
    async with nats_with(tmp_path / "server", "-c", str(configuration), "-js", "-sd", store) as server:
        client = await nats_client.connect(server.url)
        await Stream().ensure(client.jetstream())
        await client.close()
        findings = await found(bus(server.url, BusAccess()))
    assert any("max_payload" in one.remedy for one in findings if one.verdict is Verdict.FAILED)
