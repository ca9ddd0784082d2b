"""The part of an explanation that a front end gives for its pods, and the pace at which it may do so.

An explanation judges every node once. What always holds: one explanation is made at a time, in slices of some
milliseconds, and decisions have most of the time between two slices.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, Protocol

from placer.core.explain.scan import PageAsked
from plimsoll.part.errors import PlimsollError
from plimsoll.placer_api.explain import Explained
from plimsoll.placer_api.relocation import RelocationPreview

SLICE: Final = 32
"""The nodes that an explanation judges in one piece: 1 to 2 ms for a small pod."""

REST: Final = 4.0
"""The pause after a slice, as a multiple of the slice's time: an explanation has a fifth of the loop at most."""

LONGEST_REST_S: Final = 0.05
"""The longest pause in seconds. A slice during which the process stood still seems to have taken longer."""

WAITING_AT_MOST: Final = 16
"""Explanations that wait for the one under way. More are refused, as anybody may ask."""


class NotExplainedError(PlimsollError):
    """The explanation cannot be given now; ask again in some seconds."""


class Explainer(Protocol):
    """A front end that explains its pods."""

    async def explain(self, namespace: str, name: str, page: PageAsked) -> Explained | None:
        """Explain a pod; None for a pod that is not known here.

        Raises:
            NotExplainedError: pods and nodes are still being read, or too many explanations wait.
        """


class Previewer(Protocol):
    """A front end that answers which pods would move."""

    async def for_pod(self, namespace: str, name: str) -> RelocationPreview | None:
        """The plan for a waiting pod; None for a pod that is not known here.

        Raises:
            NotExplainedError: pods, nodes or budgets are still being read, or too many ask.
        """

    async def for_gpu(self) -> RelocationPreview:
        """The plan that frees a whole GPU.

        Raises:
            NotExplainedError: likewise.
        """


class Turns:
    """Lets one explanation be made at a time."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._waiting = 0

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for the turn. Cancelling gives it up.

        Raises:
            NotExplainedError: too many wait already.
        """
        if self._waiting >= WAITING_AT_MOST:
            raise NotExplainedError(f"{self._waiting} explanations wait already; ask again in some seconds")
        self._waiting += 1
        try:
            async with self._turn:
                yield
        finally:
            self._waiting -= 1


async def rest(began_s: float) -> None:
    """Pause after a slice that began at this time on the loop's clock."""
    spent_s = asyncio.get_running_loop().time() - began_s
    await asyncio.sleep(min(REST * spent_s, LONGEST_REST_S))  # decisions and watches have this time
