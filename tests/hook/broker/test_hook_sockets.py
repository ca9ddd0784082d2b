"""Whom the broker waits for before it takes a dead process's word back."""

import asyncio
import contextlib
import os
import socket
from collections.abc import Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from hook.broker import hook_sockets
from hook.broker.core.facts import ContainerKey
from hook.broker.core.shares.scheduler import Scheduler
from hook.broker.core.shares.settings import ShareSettings
from hook.broker.hook_sockets import HookSockets, bind_hook_socket
from hook.broker.shares import Shares
from plimsoll.layout import SOCKET_NAME
from plimsoll.names import ContainerName
from tests.hook.broker.conftest import DEADLINE_S, POD


async def _nobody_listens(*_: object) -> Any:  # noqa: ANN401 - in the place of several functions
    raise AssertionError


async def test_a_neighbours_crowd_does_not_delay_a_burial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who is still to be accepted is waited for in the dead process's own container, and nowhere else."""
    monkeypatch.setattr(hook_sockets, "LAST_WORDS_S", 10 * DEADLINE_S)
    own, other = (ContainerKey(POD, ContainerName(name)) for name in ("own", "other"))
    held: list[Coroutine[Any, Any, None]] = []

    def hold(task: Coroutine[Any, Any, None], _: str) -> asyncio.Task[None]:
        held.append(task)  # nobody is accepted, for the length of this test
        return asyncio.get_running_loop().create_task(asyncio.sleep(0))

    shares = Shares(partial(Scheduler, ShareSettings()), lambda _: tmp_path, lambda _: None)
    sockets = HookSockets(hold, _nobody_listens, lambda _: (), _nobody_listens, 8, shares)
    with contextlib.ExitStack() as stack:
        for container in (own, other):
            folder = tmp_path / container.container
            folder.mkdir()
            listener = await asyncio.to_thread(bind_hook_socket, folder)
            sockets.listen(container, stack.enter_context(listener))
        caller = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        caller.connect(str(tmp_path / "other" / SOCKET_NAME))
        async with asyncio.timeout(DEADLINE_S):
            await sockets.last_words(os.getpid(), [own])
        words = asyncio.create_task(sockets.last_words(os.getpid(), [other]))
        assert not (await asyncio.wait([words], timeout=0.1))[0]
        words.cancel()
    for task in held:
        task.close()
