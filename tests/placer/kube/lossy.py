"""A transport that loses binds on purpose, around a real one: requests that never arrive, answers that never come."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any

from plimsoll.kube.client import Body, PatchKind, Query, RefusedError, TransientError, Transport

Bind = Callable[[], Awaitable[bytes]]
Fault = Callable[[Bind], Awaitable[bytes]]


@dataclass(slots=True)
class LossyBinds:
    """Passes everything on, and each bind through the next fault while there is one.

    Attributes:
        faults: of the binds to come.
        pod_faults: of the patches of pods themselves to come.
        targets: node of each bind that was asked for, in order.
        patched: path of each patch that was passed on, in order.
    """

    faults: deque[Fault] = field(default_factory=deque)
    pod_faults: deque[Fault] = field(default_factory=deque)
    targets: list[str] = field(default_factory=list)
    patched: list[str] = field(default_factory=list)
    _real: Transport | None = None

    def around(self, real: Transport) -> Transport:
        """This transport, over a real one."""
        self._real = real
        return self

    @property
    def real(self) -> Transport:
        """What it passes on to."""
        assert self._real is not None
        return self._real

    async def get(self, path: str, query: Query = ()) -> bytes:
        """See `Transport`."""
        return await self.real.get(path, query)

    async def post(self, path: str, body: Body) -> bytes:
        """See `Transport`."""
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

    def stream(
        self, path: str, query: Query, read_timeout_s: float
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """See `Transport`."""
        return self.real.stream(path, query, read_timeout_s)


async def lose_answer(bind: Bind) -> bytes:
    """The bind happens, and nobody hears of it."""
    await bind()
    raise TransientError("the answer was lost")


async def lose_request(_: Bind) -> bytes:
    """The bind never arrives."""
    raise TransientError("the request was lost")


async def refuse(_: Bind) -> bytes:
    """The bind is denied, as an admission webhook may."""
    raise RefusedError("admission webhook denied the request", 403, "Forbidden")


def after(first: Callable[[], Awaitable[object]]) -> Fault:
    """The bind is sent once something else was done."""

    async def fault(bind: Bind) -> bytes:
        await first()
        return await bind()

    return fault


def held(reached: asyncio.Event, release: asyncio.Event) -> Fault:
    """The bind waits until it is released; `reached` tells that it was asked for."""

    async def fault(bind: Bind) -> bytes:
        reached.set()
        await release.wait()
        return await bind()

    return fault
