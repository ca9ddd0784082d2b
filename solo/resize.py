"""`plimsoll resize -n plimsoll-run`: change the line or the shares of a command while it runs.

The commands of `plimsoll run` have no placer and no bus. What always holds: as at a command's start, the check for
room and the registration happen under the lock of the broker's directory.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from placer.core.resize.change import NotNowError
from placer.core.resize.registered import RegisteredResize, registered_resize
from plimsoll.broker.client import BrokerAwayError, BrokerClient, RefusedError
from plimsoll.broker.wire import RUN_NAMESPACE, ContainerUse, Description
from plimsoll.ids import PodUid
from plimsoll.part.errors import InputError
from plimsoll.placer_api.rpc import Resize, Resizing, change_shown
from plimsoll.quantity import format_bytes
from solo.machine import read_machine
from solo.private_broker import locked

CONNECT_S: Final = 5.0
"""Seconds that the broker may take to answer. Without a broker, no command runs that could be resized."""


async def resize_command(root: Path, request: Resize) -> list[str]:
    """Change a running command's line or shares, and return a line of text for each changed GPU.

    The broker's answer is the confirmation: the change is in force when the answer comes.

    Raises:
        InputError: the command cannot have the change; nothing was changed.
        BrokerAwayError, NotNowError: no broker answers.
        NoGpuError: there is no GPU.
    """
    async with BrokerClient(root, timeout_s=CONNECT_S) as broker, locked(root):
        description = await broker.describe()
        pod = _pod_named(request.pod, description)
        machine = await read_machine(broker, description)
        checked = registered_resize(request, pod, description, machine.ledger, machine.view)
        await _apply(checked, broker)
        uses = [use for use in (await broker.describe()).containers if use.pod == pod]
        return [line for use in uses for line in _shown(use, request, checked.answer)]


async def _apply(checked: RegisteredResize, broker: BrokerClient) -> None:
    try:
        await broker.register(checked.registration)
    except RefusedError as error:
        with contextlib.suppress(RefusedError, BrokerAwayError):
            await broker.register(checked.undo)
        raise checked.refused_by(error) from error
    except BrokerAwayError as error:
        raise NotNowError(f"{error}; ask again") from error


def _pod_named(name: str, description: Description) -> PodUid:
    """The uid of the one running command with that name or uid."""
    found = {
        use.pod: use
        for use in description.containers
        if use.namespace == RUN_NAMESPACE and name in (use.pod_name, use.pod)
    }
    if not found:
        running = {use.pod_name for use in description.containers if use.namespace == RUN_NAMESPACE}
        names = sorted(running)
        remedy = f"running are: {', '.join(names) or 'none'}"
        raise InputError("command", name, "is not running under `plimsoll run` here", remedy)
    if len(found) > 1:
        raise InputError("command", name, "runs more than once", f"name one of {', '.join(sorted(found))}")
    return next(iter(found))


def _shown(use: ContainerUse, request: Resize, resized: Resizing) -> Iterator[str]:
    for place, (before, after) in enumerate(zip(resized.before, resized.after, strict=True)):
        text = f"{use.pod_name} on {after.gpu}: {change_shown(request, before, after)}"
        if request.gpu_memory is not None:
            held_bytes = sum(process.used_bytes[place] for process in use.processes)
            over = "" if held_bytes <= after.line_bytes else ": growth is refused until it is below"
            text += f", holds {format_bytes(held_bytes)} now{over}"
        yield text
