"""Consumers for readers of the stream that leave nothing behind.

Such a consumer is in the server's memory and acknowledges nothing. The server deletes it `UNUSED_S` after its reader
has ended.
"""

from collections.abc import AsyncGenerator, Sequence
from datetime import datetime
from typing import Final

from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from plimsoll.bus.subjects import STREAM

UNUSED_S: Final = 60.0
"""Seconds after which the server deletes a consumer that nobody reads."""

BATCH: Final = 256
"""Messages of one request: with reports of nodes with many tasks, some MB."""


def reading(
    subjects: Sequence[str],
    policy: DeliverPolicy,
    first_seq: int | None = None,
    since: datetime | None = None,
) -> ConsumerConfig:
    """A consumer of messages on these subjects.

    Args:
        subjects: those of the stream.
        policy: the message that comes first.
        first_seq: that message's number in the stream, for `BY_START_SEQUENCE`.
        since: the time from which on the server stored them, for `BY_START_TIME`.
    """
    return ConsumerConfig(
        filter_subjects=list(subjects),
        deliver_policy=policy,
        opt_start_seq=first_seq,
        opt_start_time=since,
        ack_policy=AckPolicy.NONE,
        inactive_threshold=UNUSED_S,
        mem_storage=True,
        num_replicas=1,
    )


async def kept_messages(
    jetstream: JetStreamContext, subjects: Sequence[str], policy: DeliverPolicy, answer_s: float
) -> AsyncGenerator[Msg, None]:
    """Messages that the stream keeps, in its order.

    Args:
        jetstream: the connection.
        subjects: those of the stream.
        policy: `ALL`, or `LAST_PER_SUBJECT` for the last message of each.
        answer_s: seconds that each answer may take.

    Raises:
        nats.errors.Error: no answer, or a missing right.
    """
    info = await jetstream.add_consumer(STREAM, reading(subjects, policy))
    subscription = await jetstream.pull_subscribe_bind(consumer=info.name, stream=STREAM)
    left = info.num_pending or 0
    while left:
        for message in await subscription.fetch(min(BATCH, left), timeout=answer_s):
            left = message.metadata.num_pending
            yield message
