"""The control socket while the broker ends."""

import asyncio
import contextlib
import socket
from pathlib import Path
from typing import Any, cast

import pytest

from hook.broker.engine import Engine
from hook.broker.sockets.control import bind_control_socket, serve_control
from plimsoll.broker.wire import CONTROL_NAME


class _EndError(Exception):
    """Ends the broker's tasks."""


@pytest.mark.parametrize("turns", range(6))
async def test_a_peer_that_connects_while_the_broker_ends_leaves_no_traceback(
    tmp_path: Path, turns: int
) -> None:
    """A connection that is accepted in the loop's last turns is not served, and nothing of that is logged."""
    wrong: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: wrong.append(context))
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    no_engine = cast("Engine", None)  # no request is read
    with contextlib.suppress(BaseExceptionGroup):
        async with asyncio.TaskGroup() as group:
            listener = await asyncio.to_thread(bind_control_socket, tmp_path)
            group.create_task(
                serve_control(no_engine, listener, lambda work, name: group.create_task(work, name=name))
            )
            await asyncio.sleep(0.01)
            peer.connect(str(tmp_path / CONTROL_NAME))
            for _ in range(turns):
                await asyncio.sleep(0)
            raise _EndError
    for _ in range(10):
        await asyncio.sleep(0)
    peer.close()
    assert wrong == []
