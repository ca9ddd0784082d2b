"""Reads the accusations that a pod passes its line: `limit.violated` and `limit.unenforced`, also of the last day.

The broker announces a finding once, so a placer reads those that it missed from the stream, as soon as it leads.
Before that it does not know every booking, and an accused pod without one would be forgotten. What always holds: the
events are read in the order of the stream, and reading one twice does no harm.
"""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final, NoReturn

import msgspec
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import DeliverPolicy
from nats.js.errors import APIError

from plimsoll.bus.consumers import BATCH, reading
from plimsoll.bus.subjects import STREAM
from plimsoll.envelope import decode_event, event_type
from plimsoll.events import Limit
from plimsoll.ids import GpuUuid, PodUid
from plimsoll.part.backoff import Pauses
from plimsoll.part.causes import Outage
from plimsoll.part.ending import heed_cancellation
from plimsoll.part.errors import InputError
from plimsoll.part.log import get_logger

SUBJECTS: Final = ("plimsoll.v1.limit.violated.*", "plimsoll.v1.limit.unenforced.*")

SINCE: Final = timedelta(days=1)
"""The age of the oldest finding that is read. A broker that starts announces its findings anew, and a pod that passed
its line for longer was found by a placer before, unless all were away."""

IDLE_S: Final = 5.0
"""Seconds that a request for messages waits on the server. A server that was killed has lost the request."""

Suspect = Callable[[PodUid, GpuUuid | None], None]

log = get_logger()


async def read_violations(client: Client, suspect: Suspect, leads: asyncio.Event) -> NoReturn:
    """Call `suspect` with each accused pod and GPU until cancelled; it must not block or raise.

    Args:
        client: the connection to NATS.
        suspect: takes each accusation.
        leads: set once this placer is the one that places, and knows every booking; nothing is read before.
    """
    await leads.wait()
    jetstream, pauses, outage = client.jetstream(), Pauses(), Outage(log.warning)
    while True:
        heed_cancellation()
        try:
            subscription = await _subscription(jetstream)
            while True:
                heed_cancellation()
                messages = await _fetched(subscription)
                outage.ended()
                pauses.reset()
                for message in messages:
                    note(message.data, suspect)
        except (nats.errors.Error, APIError, OSError, TimeoutError) as error:
            outage.failed("limit events cannot be read, retrying", f"{type(error).__name__}: {error}")
            await asyncio.sleep(pauses.next_s())  # NATS is away


async def _subscription(jetstream: JetStreamContext) -> JetStreamContext.PullSubscription:
    config = reading(SUBJECTS, DeliverPolicy.BY_START_TIME, since=datetime.now(UTC) - SINCE)
    info = await jetstream.add_consumer(STREAM, config)
    return await jetstream.pull_subscribe_bind(consumer=info.name, stream=STREAM)


async def _fetched(subscription: JetStreamContext.PullSubscription) -> list[Msg]:
    """The waiting messages; none after `IDLE_S` without one."""
    try:
        return await subscription.fetch(BATCH, timeout=IDLE_S)
    except TimeoutError:
        await subscription.consumer_info()  # a consumer that is gone is silent too
        return []


def note(message: bytes, suspect: Suspect) -> None:
    """Take an event in; one that is damaged, or about compute time, accuses nobody."""
    try:
        event = decode_event(message)
        limit = msgspec.json.decode(event.data, type=Limit)
    except (InputError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return  # the stream's other readers report damage
    is_known = event.type in (event_type("limit.violated"), event_type("limit.unenforced"))
    if is_known and not limit.used_pct:
        suspect(limit.pod, limit.gpu)
