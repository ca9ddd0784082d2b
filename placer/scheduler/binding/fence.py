"""The takeover from an earlier leader: changes pods, so that no write of an earlier version can succeed any more.

Each bind and each resize has the pod's resourceVersion as a precondition. What always holds: once `fence` returns, no
bind or resize of these pods succeeds that was sent before.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

import msgspec

from placer.scheduler.binding.binding import WRITE_LIFETIME_S
from placer.scheduler.binding.scope import WriteScopes
from plimsoll.kube.models import Named, Pod
from plimsoll.kube.transport import ApiError, NotFoundError, PatchKind, Transport
from plimsoll.part.backoff import Pauses
from plimsoll.part.ending import heed_cancellation
from plimsoll.part.log import get_logger

FENCE: Final = "placer.plimsoll.dev/fence"
"""An annotation that means nothing; each fence gives it another value."""
AT_ONCE: Final = 32
"""Writes under way together."""


async def take_over(
    transport: Transport,
    scopes: WriteScopes,
    catch_up: Callable[[int | None], Awaitable[None]],
    waiting: Callable[[], Iterable[Pod]],
) -> None:
    """Learn all that an earlier leader wrote, and make its late writes fail.

    Args:
        transport: for writes; this placer leads now.
        scopes: the pods that the earlier leader may still be changing, if there was one.
        catch_up: returns once all changes of pods up to a resourceVersion are known; None: up to now.
        waiting: the pods that are known to wait for a node.
    """
    began_s, inherited = asyncio.get_running_loop().time(), scopes.inherited
    await catch_up(None)
    if inherited is None:
        return
    late = {pod.full_name for pod in waiting() if inherited.has(pod)} | inherited.resized
    if late:
        version = await fence(transport, late, began_s + WRITE_LIFETIME_S)
        await catch_up(version)  # a write may have arrived just before its pod was changed
    scopes.inherited = None
    get_logger().info("late writes fenced off", pods=len(late))


async def fence(transport: Transport, pods: Iterable[str], until_s: float) -> int | None:
    """Change these pods; returns the latest of their new versions, 0 if all are gone, and None if the time was up.

    Args:
        transport: the connection to the API server.
        pods: `<namespace>/<name>` of each; a pod that is gone is no error.
        until_s: the time on the loop's clock from which on no earlier write can arrive anyway. Objects that have
            not been changed by then are left as they are.
    """
    places, value = asyncio.Semaphore(AT_ONCE), secrets.token_hex(8)
    changes: list[asyncio.Task[int]] = []
    try:
        async with asyncio.timeout_at(until_s), asyncio.TaskGroup() as group:
            for pod in pods:
                await places.acquire()
                task = group.create_task(_change(transport, pod, value), name=f"kube: fence {pod}")
                task.add_done_callback(lambda _: places.release())
                changes.append(task)
    except TimeoutError:
        get_logger().error("late writes not fenced off in time; none can arrive any more")
        return None
    return max((task.result() for task in changes), default=0)


async def _change(transport: Transport, pod: str, value: str) -> int:
    namespace, _, name = pod.partition("/")
    path = f"/api/v1/namespaces/{namespace}/pods/{name}"
    pauses = Pauses()
    body = {"metadata": {"annotations": {FENCE: value}}}
    while True:
        heed_cancellation()
        try:
            changed = await transport.patch(path, body, PatchKind.MERGE)
            return int(msgspec.json.decode(changed, type=Named).metadata.resourceVersion)
        except NotFoundError:
            return 0
        except (ApiError, msgspec.MsgspecError) as error:
            get_logger().warning("late writes not fenced off, retrying", pod=pod, error=str(error))
            await asyncio.sleep(pauses.next_s())  # the API server is away, or refuses for now
