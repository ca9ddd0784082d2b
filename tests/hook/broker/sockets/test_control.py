"""The control socket while the broker ends."""

import asyncio
import contextlib
import socket
from collections.abc import Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from hook.broker.bounded_log import BoundedLog
from hook.broker.engine import Engine
from hook.broker.sockets.control import bind_control_socket, serve_control
from hook.broker.sockets.hook import StartTask
from plimsoll.broker.wire import CONTROL_NAME
from plimsoll.nvml.thread import DriverThread
from tests.servers.waiting import PATIENCE_S


def _ends(_work: Coroutine[Any, Any, None], _name: str) -> asyncio.Task[None]:
    """Stands for a task group that accepts no further tasks."""
    raise RuntimeError("TaskGroup is shutting down")


async def _cut_off(tmp_path: Path, start_task: StartTask) -> list[dict[str, Any]]:
    """Connect, and wait until the broker closes the connection; returns what was logged as wrong."""
    wrong: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: wrong.append(context))
    listener = await asyncio.to_thread(bind_control_socket, tmp_path)
    only_log = cast("Engine", SimpleNamespace(bounded_log=BoundedLog()))  # no request is read
    serving = asyncio.create_task(serve_control(only_log, cast("DriverThread", None), listener, start_task))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
        peer.settimeout(PATIENCE_S)
        peer.connect(str(tmp_path / CONTROL_NAME))
        assert await asyncio.to_thread(peer.recv, 1) == b""
    serving.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await serving
    return wrong


async def test_a_peer_that_connects_while_the_broker_ends_leaves_no_traceback(tmp_path: Path) -> None:
    """A connection that is accepted in the loop's last turns is closed, and nothing of that is logged."""
    assert await _cut_off(tmp_path, _ends) == []


async def test_a_connection_whose_task_never_began_is_closed(tmp_path: Path) -> None:
    """The end of the broker cancels a task before its first step; the connection ends all the same."""

    def cancelled(work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work, name=name)
        task.cancel()
        return task

    assert await _cut_off(tmp_path, cancelled) == []
