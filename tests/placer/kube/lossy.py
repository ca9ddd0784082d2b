"""A transport that loses binds on purpose.

It wraps a real one; requests do not arrive, or their answers do not come back.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any

from plimsoll.kube.transport import Body, GoneError, PatchKind, Query, RefusedError, TransientError, Transport

Bind = Callable[[], Awaitable[bytes]]
Fault = Callable[[Bind], Awaitable[bytes]]


@dataclass(slots=True)
class LossyBinds:
    """Forwards all calls; each bind goes through the next fault while one is left.

    Attributes:
        faults: the faults of the next binds, in order.
        pod_faults: the faults of the next patches of pods, in order.
        read_faults: the faults of the next reads of single pods, in order.
        event_faults: the faults of the next new events, in order.
        delete_faults: the faults of the next deletions, in order.
        targets: the node of each requested bind, in order.
        patched: the path of each forwarded patch, in order.
    """

    faults: deque[Fault] = field(default_factory=deque)
    pod_faults: deque[Fault] = field(default_factory=deque)
    read_faults: deque[Fault] = field(default_factory=deque)
    event_faults: deque[Fault] = field(default_factory=deque)
    delete_faults: deque[Fault] = field(default_factory=deque)
    targets: list[str] = field(default_factory=list)
    patched: list[str] = field(default_factory=list)
    _real: Transport | None = None

    def around(self, real: Transport) -> Transport:
        """Wrap a real transport in this one."""
        self._real = real
        return self

    @property
    def real(self) -> Transport:
        """The wrapped transport."""
        assert self._real is not None
        return self._real

    async def get(self, path: str, query: Query = ()) -> bytes:
        """See `Transport`."""
        if "/pods/" in path and self.read_faults:
            return await self.read_faults.popleft()(lambda: self.real.get(path, query))
        return await self.real.get(path, query)

    async def post(self, path: str, body: Body) -> bytes:
        """See `Transport`."""
        if path.endswith("/events") and self.event_faults:
            return await self.event_faults.popleft()(lambda: self.real.post(path, body))
        if not path.endswith("/binding"):
            return await self.real.post(path, body)
        target: Any = body["target"]
        self.targets.append(target["name"])
        if not self.faults:
            return await self.real.post(path, body)
        return await self.faults.popleft()(lambda: self.real.post(path, body))

    async def patch(self, path: str, body: Body, kind: PatchKind) -> bytes:
        """See `Transport`."""
        self.patched.append(path)
        if "/pods/" in path and not path.endswith("/status") and self.pod_faults:
            return await self.pod_faults.popleft()(lambda: self.real.patch(path, body, kind))
        return await self.real.patch(path, body, kind)

    async def delete(self, path: str, body: Body) -> bytes:
        """See `Transport`."""
        if self.delete_faults:
            return await self.delete_faults.popleft()(lambda: self.real.delete(path, body))
        return await self.real.delete(path, body)

    def stream(
        self, path: str, query: Query, read_timeout_s: float
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """See `Transport`."""
        return self.real.stream(path, query, read_timeout_s)


async def lose_answer(bind: Bind) -> bytes:
    """Send the bind and drop its answer."""
    await bind()
    raise TransientError("the answer was lost")


async def lose_request(_: Bind) -> bytes:
    """Drop the bind's request."""
    raise TransientError("the request was lost")


def late(release: asyncio.Event, under_way: list[asyncio.Task[bytes]]) -> Fault:
    """Answer at once that nothing is known. The bind is under way, and arrives after `release`."""

    async def fault(bind: Bind) -> bytes:
        async def arrive() -> bytes:
            await release.wait()
            return await bind()

        under_way.append(asyncio.create_task(arrive(), name="late bind"))
        raise TransientError("the connection was cut")

    return fault


async def refuse(_: Bind) -> bytes:
    """Answer the bind as an admission webhook that denies it."""
    raise RefusedError("admission webhook denied the request", 403, "Forbidden")


async def find_expired(_: Bind) -> bytes:
    """Answer the bind with 410."""
    raise GoneError("the version is too old", 410, "Expired")


def after(first: Callable[[], Awaitable[object]]) -> Fault:
    """Send the bind after this action is done."""

    async def fault(bind: Bind) -> bytes:
        await first()
        return await bind()

    return fault


def held(reached: asyncio.Event, release: asyncio.Event) -> Fault:
    """Hold the bind until `release`; set `reached` once it was requested."""

    async def fault(bind: Bind) -> bytes:
        reached.set()
        await release.wait()
        return await bind()

    return fault
