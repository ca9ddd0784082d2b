"""Damaged input is answered or logged with field and value, and the broker goes on."""

import asyncio
import contextlib
import ctypes
import os
import socket
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hook.broker.bounded_log import BURST
from plimsoll.broker.announcements import Announcement, Context, Hello, Other, decode
from plimsoll.broker.datagrams import KIND_REFUSED, KIND_WAIT, MESSAGE_MAGIC, Message
from plimsoll.broker.pages import SOCKET_NAME, VERSION
from plimsoll.broker.wire import BrokerAnswer, Description, Done, Refused
from tests.hook.broker.conftest import GPUS, POD, Broker, registration, until
from tests.servers.waiting import PATIENCE_S


def _message(**fields: Any) -> str:  # noqa: ANN401 - any field of the structure
    """A good `hello` with some fields replaced, in hex."""
    good = {"magic": MESSAGE_MAGIC, "version": VERSION, "kind": 1, "slot": 0, "owner": 1}
    return bytes(Message(**good | fields)).hex()


def _answer_to(question: bytes, limits_dir: Path) -> Message:
    directory = os.open(limits_dir, os.O_PATH)  # The whole path may be too long for a socket's address.
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.settimeout(PATIENCE_S)
            connection.connect(f"/proc/self/fd/{directory}/{SOCKET_NAME}")
            connection.send(question)
            return Message.from_buffer_copy(connection.recv(ctypes.sizeof(Message)))
    finally:
        os.close(directory)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("00", "length: 1 is not"),
        (_message() + "00", f"length: {ctypes.sizeof(Message) + 1} is not"),
        (_message(magic=7), "magic: '0x7'"),
        (_message(version=9), "version: 9"),
        (_message(slot=256), "slot: 256"),
        (_message(owner=0), "owner: 0"),
        (_message(owner=12345), "owner: 12345"),
        (_message(kind=2, gpu_uuid=b"GPU-not-mine"), "gpu_uuid: 'GPU-not-mine'"),
        (_message(kind=3, gpu_uuid=b"\xff\xfe"), "gpu_uuid: '\\\\xff\\\\xfe'"),
        (_message(kind=4, text=b"rm -rf"), "text: 'rm -rf'"),
    ],
)
async def test_a_damaged_datagram_costs_a_log_line(broker: Broker, data: str, said: str) -> None:
    """The log names field and value, and the broker handles the next good datagram on the same connection."""
    await broker.client.register(registration())
    process = await broker.spawn()
    await process.do("hold")
    await process.do(f"raw {data}")
    await process.begin()
    entries = await broker.announced(1)
    assert [(entry.what, entry.pid) for entry in entries] == [("hello", process.pid)]
    logged = broker.log("datagram_damaged")
    assert [line["pid"] for line in logged] == [process.pid]
    assert logged[0]["problem"].startswith(said)
    assert broker.journaled() == entries


async def test_a_question_that_is_not_believed_is_refused(broker: Broker) -> None:
    """A refused request to wait is answered with the reason, as the process sleeps until an answer.

    A request that names another process as its owner is refused in the same way.
    """
    await broker.client.register(registration())
    question = bytes.fromhex(_message(kind=KIND_WAIT, owner=12345, gpu_uuid=GPUS[0].encode()))
    answer = await asyncio.to_thread(_answer_to, question, broker.limits_dir())
    assert (answer.kind, answer.gpu_uuid) == (KIND_REFUSED, GPUS[0].encode())
    assert answer.text.startswith(b"owner: 12345")


async def test_a_flood_of_damage_does_not_fill_the_log(broker: Broker) -> None:
    """A thousand damaged datagrams leave some log lines, and the number of the others when the pod goes."""
    await broker.client.register(registration())
    process = await broker.spawn()
    await process.do("hold")
    for _ in range(1000):
        await process.do("raw 00")
    await process.begin()
    await broker.announced(1)
    logged = broker.log("datagram_damaged")
    assert BURST <= len(logged) < BURST + 10
    await process.kill()
    await broker.client.unregister(POD)
    await until(lambda: _has_logged(broker, "lines_left_out"), "the number is logged")
    [rest] = broker.log("lines_left_out")
    assert (rest["pod"], rest["of"]) == (POD, "datagram_damaged")
    assert len(logged) + rest["left_out"] + sum(line.get("left_out", 0) for line in logged) == 1000


async def test_a_program_that_reconnects_and_sends_damage_does_not_fill_the_log(broker: Broker) -> None:
    """A program that sends damage over ever new connections for seconds leaves some KiB of log.

    The log has the number of omitted lines.
    """
    await broker.client.register(registration())
    started = await asyncio.to_thread(_reconnect, broker.limits_dir(), 3.0)
    process = await broker.spawn()
    await process.begin()
    await broker.announced(1)
    assert await asyncio.to_thread(lambda: broker.log_path.stat().st_size) < 64 * 1024
    await process.kill()
    await broker.client.unregister(POD)
    await until(lambda: _has_logged(broker, "lines_left_out"), "the number is logged")
    left_out = sum(line.get("left_out", 0) for event in LIMITED for line in broker.log(event))
    assert left_out > started / 2 > BURST


LIMITED = ("datagram_damaged", "too_many_connections", "lines_left_out")


ENOUGH = 4 * BURST
"""A machine may stand still for all the seconds of a flood."""


def _reconnect(limits_dir: Path, seconds: float) -> int:
    """Connect, send a damaged datagram, and hang up or keep the connection, repeatedly and `ENOUGH` times at least.

    Returns the number of connections.
    """
    directory, count, kept = os.open(limits_dir, os.O_PATH), 0, []
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s or count < ENOUGH:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with contextlib.suppress(ConnectionError):
            connection.connect(f"/proc/self/fd/{directory}/{SOCKET_NAME}")
            connection.send(b"damage")
            count += 1
        kept.append(connection)
        if len(kept) > 200:  # the test's own descriptors are few
            for each in kept:
                each.close()
            kept.clear()
    for each in kept:
        each.close()
    os.close(directory)
    return count


async def test_a_process_cannot_speak_for_its_neighbour(broker: Broker) -> None:
    """A datagram with another process's word is refused, and that process keeps its slot."""
    await broker.client.register(registration())
    victim, liar = await broker.spawn(), await broker.spawn()
    await victim.begin(4096)
    await broker.announced(1)
    await liar.do(f"raw {_message(owner=broker.owners()[0])}")
    await until(lambda: _has_logged(broker, "datagram_damaged"), "the lie is logged")
    await liar.kill()
    assert broker.counts().slots[0].used_bytes[0] == 4096
    assert {entry.pid for entry in broker.journaled()} == {victim.pid}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"hello?\n", "line: 'hello?' is not JSON"),
        (b"\xff\xfe\n", "line: '\\\\xff\\\\xfe' is not JSON"),
        (b'{"type":"register","pod":5}\n', "pod: 5 is refused"),
        (b'{"type":"explode"}\n', "type: 'explode' is refused"),
        (b"[1]\n", "request: [1] is refused"),
        (b"[oops\n", "line: '[oops' is not JSON"),
        (b"[" * 400_000 + b"\n", "line: '[["),
        (b'{"type":"register","pod":5,\n', "line: "),
        (b'{"type":"describe","x":' + b"[" * 400_000 + b"]" * 400_000 + b"}\n", "line: "),
        (b'{"type":"acknowledge","seq":"x"}\n', "seq: 'x' is refused"),
        (b'{"type":"acknowledge","seq":-1}\n', "seq: -1 was never announced"),
        (
            (
                b'{"type":"register","pod":"p","namespace":"n","name":"n","containers":[{"name":"c",'
                b'"lines":[{"gpu":"G","line_bytes":1,"share_pct":"lots"}]}]}\n'
            ),
            "containers[0].lines[0].share_pct: 'lots' is refused",
        ),
        (b'{"pod":"' + b"x" * 3_000_000 + b'"}\n', "line: '…' is longer than 1048576 bytes"),
    ],
)
async def test_a_damaged_control_line_is_refused_and_the_connection_stays(
    broker: Broker, line: bytes, said: str
) -> None:
    """The answer names field, value and remedy, and the next request on the same connection succeeds."""
    reader, writer = await asyncio.open_unix_connection(broker.root / "broker.sock")
    writer.write(line + b'{"type":"describe"}\n')
    refused, answer = await _answer(reader), await _answer(reader)
    writer.close()
    await writer.wait_closed()
    assert isinstance(refused, Refused)
    assert refused.message.startswith(said)
    assert "; " in refused.message
    assert answer == Description(containers=())


async def test_a_request_between_announcements_gets_its_own_answer(broker: Broker) -> None:
    """After a subscription each further request on that connection has one answer among the announcements."""
    await broker.client.register(registration())
    process = await broker.spawn()
    reader, writer = await asyncio.open_unix_connection(broker.root / "broker.sock")
    writer.write(b'{"type":"subscribe"}\n{"type":"subscribe"}\n')
    assert [await _answer(reader), await _answer(reader)] == [Done(), Done()]
    await process.begin()
    await process.do(f"send context {GPUS[0]}")
    hello, context = await _answer(reader), await _answer(reader)
    assert [type(hello), type(context)] == [Hello, Context]
    writer.write(b'{"type":"acknowledge","seq":2}\n')
    assert await _answer(reader) == Done()
    writer.close()
    await writer.wait_closed()


async def _answer(reader: asyncio.StreamReader) -> BrokerAnswer | Announcement:
    async with asyncio.timeout(PATIENCE_S):
        return decode(await reader.readuntil(b"\n"), msgspec.json.Decoder(BrokerAnswer | Other))


async def _has_logged(broker: Broker, event: str) -> bool:
    return bool(broker.log(event))
