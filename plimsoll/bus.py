"""What every client of the bus needs: the one stream, made alike by whoever comes first, and care with nats-py.

The names on it are `plimsoll.subjects`, what is said `plimsoll.events`. What always holds: a stream that is there
is taken as it is.
"""

import asyncio
from dataclasses import dataclass
from typing import Final

import structlog
from nats.js import JetStreamContext
from nats.js.api import DiscardPolicy, RetentionPolicy, StorageType, StreamConfig
from nats.js.errors import BadRequestError, NotFoundError

from plimsoll.quantity import GIB
from plimsoll.subjects import EVENTS, STREAM

MAX_BYTES: Final = GIB
"""About half a million reports of a node with eight GPUs."""

MAX_AGE_S: Final = 7 * 24 * 3600.0
"""Longer than any monitor's heartbeat by far, so that each node's last report is always there."""

DUPLICATE_WINDOW_S: Final = 3600.0
"""For how long the server knows a `Nats-Msg-Id` again.

It must outlast the time between an event's arrival in the stream and the moment when its publisher knows of
it: a lost acknowledgement, a monitor killed between the two, NATS away meanwhile. An hour covers every restart and
most outages, at about 150 bytes per event: 60 MB for a hundred nodes of thirty tasks a minute each. After a
longer outage the monitor asks the stream for its last event first (see its `publisher.py`).
"""

NATS_SCHEMES: Final = ("nats", "tls", "ws", "wss")
"""What the URL of a NATS server begins with."""

log = structlog.get_logger("plimsoll.bus")


@dataclass(frozen=True, slots=True)
class Stream:
    """How the stream of all events is made: on disk, and forgetting the oldest events first.

    Attributes:
        max_bytes: its size.
        max_age_s: age of its oldest event.
    """

    max_bytes: int = MAX_BYTES
    max_age_s: float = MAX_AGE_S

    def config(self) -> StreamConfig:
        """It, as JetStream reads it."""
        return StreamConfig(
            name=STREAM,
            subjects=[EVENTS],
            retention=RetentionPolicy.LIMITS,
            discard=DiscardPolicy.OLD,
            storage=StorageType.FILE,
            max_bytes=self.max_bytes,
            max_age=self.max_age_s,
            # The server refuses a window longer than an event lives.
            duplicate_window=min(DUPLICATE_WINDOW_S, self.max_age_s),
            # Readers fetch the last event per node without asking the stream's leader.
            allow_direct=True,
        )

    async def ensure(self, jetstream: JetStreamContext) -> float:
        """Make the stream if it is missing, and return its duplicate window in seconds.

        One that exists is an operator's or another part's choice and is left alone. Several parts may do this
        at once.

        Raises:
            nats.errors.Error: NATS is away, has no JetStream, or lacks the space.
        """
        try:
            found = await jetstream.stream_info(STREAM)
        except NotFoundError:
            try:
                found = await jetstream.add_stream(self.config())
                log.info("made the stream", stream=STREAM, max_bytes=self.max_bytes, max_age_s=self.max_age_s)
            except BadRequestError:
                # Another part made it meanwhile, with limits of its own; or it cannot be made, and is not there.
                found = await jetstream.stream_info(STREAM)
        return found.config.duplicate_window or 0.0


def heed_cancellation() -> None:
    """Raise `CancelledError` if this task was cancelled and somebody swallowed it; call it in endless loops.

    nats-py 2.16 drops some cancellations within `publish` and turns others into errors of its own; on Python 3.11
    `asyncio.wait_for`, which it is made of, returns its result where result and cancellation come at once.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
