"""Waits until the node's broker has confirmed a resize, by the events `limit.resized` in the stream.

What always holds: only an event of each GPU of the container, with the requested values, confirms a change.
"""

import msgspec
from nats.js import JetStreamContext
from nats.js.api import ConsumerConfig, DeliverPolicy

from plimsoll.broker.wire import Line
from plimsoll.bus.subjects import STREAM, limit_subject
from plimsoll.envelope import decode_event
from plimsoll.events import Limit
from plimsoll.ids import GpuUuid
from plimsoll.part.errors import InputError
from plimsoll.placer_api.rpc import Resize, Resizing


async def newest(jetstream: JetStreamContext) -> int:
    """The number of the stream's newest event: only later events can confirm a change that is not made yet.

    Raises:
        nats.errors.Error: NATS is away, or has no stream.
    """
    return int((await jetstream.stream_info(STREAM)).state.last_seq)


async def until_confirmed(
    jetstream: JetStreamContext, request: Resize, asked: Resizing, after: int, seen: dict[GpuUuid, Limit]
) -> None:
    """Wait for the confirmations; `seen` has the latest one of each GPU meanwhile.

    If the same change was requested before, the broker announces nothing new. The earlier confirmation then counts,
    if no later one contradicts it.

    Args:
        jetstream: the JetStream context of a connected client.
        request: the request.
        asked: the placer's answer to it.
        after: the number of the newest event before the request.
        seen: filled here.

    Raises:
        nats.errors.Error: the events cannot be read.
    """
    changed = asked.before != asked.after
    config = ConsumerConfig(
        deliver_policy=DeliverPolicy.BY_START_SEQUENCE if changed else DeliverPolicy.ALL,
        opt_start_seq=after + 1 if changed else None,
    )
    subject = limit_subject("resized", asked.node)
    events = await jetstream.subscribe(subject, ordered_consumer=True, config=config)
    try:
        while True:
            message = await events.next_msg(timeout=None)
            limit = _limit_in(message.data)
            if (
                limit is not None
                and (limit.pod, limit.container) == (asked.pod, asked.container)
                and limit.gpu
            ):
                seen[limit.gpu] = limit
            is_latest = changed or message.metadata.num_pending == 0
            if is_latest and all(holds(request, line, seen) for line in asked.after):
                return
    finally:
        await events.unsubscribe()


def holds(request: Resize, line: Line, seen: dict[GpuUuid, Limit]) -> bool:
    """Whether the last confirmation has the requested values; other values may have changed meanwhile."""
    return line.gpu in seen and request.asked_of(seen[line.gpu]) == request.asked_of(line)


def _limit_in(message: bytes) -> Limit | None:
    """The limit event in a message, or None for a damaged message, which confirms nothing."""
    try:
        return msgspec.json.decode(decode_event(message).data, type=Limit)
    except (InputError, msgspec.MsgspecError):
        return None
