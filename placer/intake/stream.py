"""The placer's side of the stream: each node's last messages, the durable consumer of new ones, and their age."""

import contextlib
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Final

import msgspec
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from plimsoll.bus.client import REQUEST_S
from plimsoll.bus.consumers import BATCH, reading
from plimsoll.bus.subjects import INFOS, REPORTS, STREAM
from plimsoll.part.ending import heed_cancellation

ACK_WAIT_S: Final = 10.0
"""After this time an unacknowledged message is delivered again, which changes nothing but the counts."""

FORGET_CONSUMER_S: Final = 24 * 3600.0
"""Seconds after which the server deletes an unused consumer. A placer that restarts earlier continues from there."""


async def last_messages(jetstream: JetStreamContext) -> list[Msg]:
    """The last message of each subject of reports and of nodes' hardware in the stream.

    Raises:
        nats.errors.Error: no answer, or not all of them in time.
    """
    config = reading([*REPORTS, INFOS], DeliverPolicy.LAST_PER_SUBJECT)
    info = await jetstream.add_consumer(STREAM, config)
    subscription = await jetstream.pull_subscribe_bind(consumer=info.name, stream=STREAM)
    messages: list[Msg] = []
    try:
        while len(messages) < (info.num_pending or 0):
            heed_cancellation()
            messages += await subscription.fetch(BATCH, timeout=REQUEST_S)
    finally:
        with contextlib.suppress(nats.errors.Error):  # the server deletes an idle consumer by itself
            await subscription.unsubscribe()
            await jetstream.delete_consumer(STREAM, info.name)
    return messages


@contextlib.asynccontextmanager
async def consumer_of(
    jetstream: JetStreamContext, durable: str
) -> AsyncIterator[JetStreamContext.PullSubscription]:
    """The placer's durable consumer, made if it is missing."""
    config = ConsumerConfig(
        durable_name=durable,
        filter_subjects=[*REPORTS, INFOS],
        deliver_policy=DeliverPolicy.LAST_PER_SUBJECT,
        ack_policy=AckPolicy.EXPLICIT,
        ack_wait=ACK_WAIT_S,
        inactive_threshold=FORGET_CONSUMER_S,
    )
    await jetstream.add_consumer(STREAM, config)
    subscription = await jetstream.pull_subscribe_bind(consumer=durable, stream=STREAM)
    try:
        yield subscription
    finally:
        with contextlib.suppress(nats.errors.Error):  # a closed connection has no subscriptions left
            await subscription.unsubscribe()


class _StreamInfo(msgspec.Struct, frozen=True):
    ts: datetime | None = None
    error: msgspec.Raw | None = None


async def server_time(client: Client) -> datetime:
    """The time at the server that stores reports.

    Raises:
        nats.errors.Error: no answer came, or the stream has no leader now.
    """
    answer = await client.request(f"$JS.API.STREAM.INFO.{STREAM}", timeout=REQUEST_S)
    info = msgspec.json.decode(answer.data, type=_StreamInfo)
    if info.error is not None or info.ts is None:
        raise nats.errors.Error(f"the server's time cannot be read: {bytes(info.error or b'').decode()}")
    return info.ts


def age_s(message: Msg, now: datetime) -> float:
    """The time from the server's storing a message until `now`, by the server's clock; at least 0."""
    return max(0.0, (now - message.metadata.timestamp).total_seconds())
