"""Connections over which processes report, when the broker runs short of descriptors."""

import asyncio
import errno
import os
import socket
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from hook.broker import hook_sockets
from hook.broker.core.datagram import ShareReport
from hook.broker.core.facts import ContainerKey
from hook.broker.core.shares.scheduler import Scheduler
from hook.broker.core.shares.settings import ShareSettings
from hook.broker.gates import Pace, open_gate
from hook.broker.hook_sockets import HookSockets, bind_hook_socket
from hook.broker.processes import read_process
from hook.broker.sharers import Sharer
from hook.broker.shares import Shares
from plimsoll.brokerwire import ContainerLines, Line
from plimsoll.layout import (
    GATE_METERED,
    GATE_SHUT,
    KIND_SHARE,
    MESSAGE_MAGIC,
    SHARE_WANTS,
    SOCKET_NAME,
    VERSION,
    Message,
)
from plimsoll.names import ContainerName
from tests.hook.broker.conftest import DEADLINE_S, GPUS, POD, until
from tests.hook.broker.gateview import GateView


async def _is_not_asked(*_: object) -> Any:  # noqa: ANN401 - in the place of several functions
    raise AssertionError


class _Short(Shares):
    """Has no descriptor left for the first that it is to look up."""

    has_failed = False

    async def introduce(self, container: ContainerKey, pid: int, report: ShareReport) -> Sharer:
        if not self.has_failed:
            self.has_failed = True
            raise OSError(errno.EMFILE, "too many open files")
        return await super().introduce(container, pid, report)


async def test_who_could_not_be_looked_up_says_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits at its gate for what it said: so it is hung up on, comes again, and is let through."""
    monkeypatch.setattr(hook_sockets, "ACCEPT_PAUSE_S", 0.0)
    own = ContainerKey(POD, ContainerName("own"))
    shares = _Short(partial(Scheduler, ShareSettings()), lambda _: tmp_path, lambda _: None)
    lines = ContainerLines(name=own.container, lines=(Line(gpu=GPUS[0], line_bytes=1, limit_pct=50),))
    shares.join(own, lines, await asyncio.to_thread(open_gate, tmp_path, Pace(2000, 500)))
    gate = await asyncio.to_thread(GateView, tmp_path)
    async with asyncio.TaskGroup() as group:
        sockets = HookSockets(
            lambda work, name: group.create_task(work, name=name),
            _is_not_asked, lambda _: (), _is_not_asked, 8, shares,
        )  # fmt: skip
        sockets.listen(own, await asyncio.to_thread(bind_hook_socket, tmp_path))
        assert await asyncio.to_thread(_is_hung_up_on, tmp_path, gate) is True
        assert gate.state == GATE_SHUT
        asking = asyncio.create_task(asyncio.to_thread(_is_hung_up_on, tmp_path, gate))

        async def is_let_through() -> bool:
            return gate.state == GATE_METERED

        await until(is_let_through, "let through")
        sockets.close(own)
        await asking
    shares.close()


def _is_hung_up_on(directory: Path, gate: GateView) -> bool:
    """Say over a connection that a launch waits; whether the other side ends it."""
    process = read_process(os.getpid())
    assert process is not None
    message = Message(
        magic=MESSAGE_MAGIC, version=VERSION, kind=KIND_SHARE, owner=process.owner, share_state=SHARE_WANTS,
        gate_word=gate.word,
    )  # fmt: skip
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as caller:
        caller.settimeout(DEADLINE_S)
        caller.connect(str(directory / SOCKET_NAME))
        caller.send(bytes(message))
        return caller.recv(1) == b""
