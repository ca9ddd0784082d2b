"""Before a burial the broker accepts the connections that wait at the dead process's own container."""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from hook.broker.core.ids import ContainerKey
from hook.broker.sockets import hook as hook_sockets
from hook.broker.sockets.hook import HookSockets, bind_hook_socket
from plimsoll.broker.pages import SOCKET_NAME
from plimsoll.ids import ContainerName
from tests.hook.broker.conftest import POD
from tests.servers.waiting import PATIENCE_S


async def _nobody_listens(*_: object) -> Any:  # noqa: ANN401 - in the place of several functions
    raise AssertionError


OWN, OTHER = (ContainerKey(POD, ContainerName(name)) for name in ("own", "other"))


@pytest.fixture(name="listeners")
def _listeners(tmp_path: Path) -> Iterator[dict[ContainerKey, socket.socket]]:
    """The listening socket of each container."""
    with contextlib.ExitStack() as stack:
        listeners = {}
        for container in (OWN, OTHER):
            folder = tmp_path / container.container
            folder.mkdir()
            listeners[container] = stack.enter_context(bind_hook_socket(folder))
        yield listeners


@pytest.fixture(name="sockets")
async def _sockets(
    listeners: dict[ContainerKey, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[HookSockets]:
    """Both containers' sockets, which accept no connection for the length of a test."""
    monkeypatch.setattr(hook_sockets, "DRAIN_DEAD_S", 10 * PATIENCE_S)
    held: list[Coroutine[Any, Any, None]] = []

    def hold(task: Coroutine[Any, Any, None], _: str) -> asyncio.Task[None]:
        held.append(task)
        return asyncio.get_running_loop().create_task(asyncio.sleep(0))

    sockets = HookSockets(hold, lambda *_: None, lambda _: (), _nobody_listens)
    for container, listener in listeners.items():
        sockets.listen(container, listener)
    yield sockets
    for task in held:
        task.close()


@pytest.fixture(name="caller")
def _caller(tmp_path: Path, sockets: HookSockets) -> Iterator[None]:  # noqa: ARG001 - they listen
    """A connection that the other container's socket has not accepted yet."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as caller:
        caller.connect(str(tmp_path / "other" / SOCKET_NAME))
        yield


@pytest.mark.usefixtures("caller")
async def test_a_neighbours_crowd_does_not_delay_a_burial(sockets: HookSockets) -> None:
    """A burial waits for the unaccepted connections of the dead process's own container, and of no other one."""
    async with asyncio.timeout(PATIENCE_S):
        await sockets.drain_dead(os.getpid(), [OWN])
    words = asyncio.create_task(sockets.drain_dead(os.getpid(), [OTHER]))
    assert not (await asyncio.wait([words], timeout=0.1))[0]
    words.cancel()


@pytest.mark.usefixtures("caller")
async def test_a_container_that_goes_meanwhile_is_waited_for_no_longer(
    sockets: HookSockets, listeners: dict[ContainerKey, socket.socket]
) -> None:
    """If a pod is removed while a burial waits for a dead process's last messages, the wait ends, not the broker."""
    words = asyncio.create_task(sockets.drain_dead(os.getpid(), [OWN, OTHER]))
    assert not (await asyncio.wait([words], timeout=0.1))[0]
    sockets.close(OTHER)
    listeners[OTHER].close()
    async with asyncio.timeout(PATIENCE_S):
        await words
