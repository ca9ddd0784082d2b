"""The last events about the limits of each pod, for explanations: a refused allocation, a wait, an unmet share.

What always holds: no decision reads them. They are read as they come, not from the stream, so events from before the
placer's start, or of a time without NATS, are not known. Their number is bounded.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NoReturn

import msgspec
import nats.errors
from nats.aio.client import Client

from placer.core.explain.slowness import LimitNews
from plimsoll.bus.subjects import LIMITS
from plimsoll.envelope import decode_event, event_type
from plimsoll.events import Limit
from plimsoll.ids import PodUid
from plimsoll.part.ending import heed_cancellation
from plimsoll.part.errors import InputError
from plimsoll.part.log import get_logger

KINDS: Final = ("denied", "paused", "resumed", "unmet")
"""The events that say whether a container is held up. A `resumed` cancels the last `paused`."""

RECENT_S: Final = 600.0
"""Seconds for which an event says something about now."""

PODS_AT_MOST: Final = 10_000
"""Pods whose events are kept, some 10 MiB; the pod without an event for the longest time is dropped first."""

PENDING_AT_MOST: Final = 10_000
"""Events that may wait to be read; the client library drops more."""

AGAIN_S: Final = 1.0
"""The pause in seconds after an event could not be read: NATS is away, or the client library dropped events."""


class LimitView:
    """The events, by pod and kind.

    Args:
        client: the NATS client.
        clock_s: a clock in seconds that never goes back.
    """

    def __init__(self, client: Client, clock_s: Callable[[], float] | None = None) -> None:
        self._client = client
        self._clock_s = clock_s or (lambda: asyncio.get_running_loop().time())
        self._last: OrderedDict[PodUid, dict[str, tuple[float, Limit]]] = OrderedDict()

    async def run(self) -> NoReturn:
        """Read events until cancelled."""
        events = await self._client.subscribe(LIMITS, pending_msgs_limit=PENDING_AT_MOST)
        while True:
            heed_cancellation()
            try:
                message = await events.next_msg(timeout=None)
            except nats.errors.Error as error:
                cause = f"{type(error).__name__}: {error}"
                get_logger().warning("limit events cannot be read, retrying", error=cause)
                await asyncio.sleep(AGAIN_S)
            else:
                self.note(message.data)

    def note(self, message: bytes) -> None:
        """Take an event in; one that is damaged, or of another kind, changes nothing."""
        try:
            event = decode_event(message)
            what = next((one for one in KINDS if event.type == event_type(f"limit.{one}")), None)
            if what is None:
                return
            limit = msgspec.json.decode(event.data, type=Limit)
        except (InputError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return  # the stream's own readers report damage
        known = self._last.pop(limit.pod, {})
        if what == "resumed":
            known.pop("paused", None)
        else:
            known[what] = (self._clock_s(), limit)
        if known:
            self._last[limit.pod] = known
        while len(self._last) > PODS_AT_MOST:
            self._last.popitem(last=False)

    def of(self, pod: PodUid) -> tuple[LimitNews, ...]:
        """The recent events about a pod, the latest first."""
        now_s = self._clock_s()
        news = (
            LimitNews(what, now_s - at_s, limit) for what, (at_s, limit) in self._last.get(pod, {}).items()
        )
        return tuple(sorted((one for one in news if one.age_s <= RECENT_S), key=lambda one: one.age_s))
