"""The JetStream stream that every client of the bus uses.

The first client makes the stream; every client would make the same one. `plimsoll.bus.subjects` has the names,
`plimsoll.events` the messages. What always holds: a stream that exists is used as it is.

On a cluster of NATS servers, the stream has as many replicas as the first client's setting says. The placer's durable
consumer has the replicas of the stream. A replicated stream loses no acknowledged event when a server dies, and
answers again once the servers that are left have chosen another leader, some seconds later.
"""

from dataclasses import dataclass
from typing import Final, Literal

import nats.errors
from nats.js import JetStreamContext
from nats.js.api import DiscardPolicy, RetentionPolicy, StorageType, StreamConfig, StreamInfo
from nats.js.errors import BadRequestError, NotFoundError

from plimsoll.bus.subjects import EVENTS, STREAM
from plimsoll.part.log import get_logger
from plimsoll.quantity import GIB

MAX_BYTES: Final = GIB
"""About half a million reports of a node with eight GPUs."""

MAX_AGE_S: Final = 7 * 24 * 3600.0
"""Far longer than any monitor's heartbeat, so that each node's last report is always in the stream."""

LONGEST_AGE_S: Final = 9e9
"""NATS counts the age in nanoseconds, in 63 bits."""

DUPLICATE_WINDOW_S: Final = 3600.0
"""How long the server remembers a `Nats-Msg-Id`, to drop a second copy.

The window must be longer than the time between an event's arrival in the stream and its acknowledgement at the
publisher: an acknowledgement may be lost, the monitor killed, NATS away meanwhile. An hour covers every restart and
most outages, at about 150 bytes per event: 60 MB for a hundred nodes of thirty tasks a minute each. After a
longer outage the monitor first reads its last event from the stream (see its `publisher.py`).
"""

Replicas = Literal[1, 3, 5]
"""How many servers of a cluster keep the stream: 3 bear the loss of one server, 5 of two."""

PING_S: Final = 10
LOST_PINGS: Final = 2
"""A client pings its server at this interval in seconds, and leaves a server that owes more than this many answers.

So a client leaves a server that hangs, or whose machine has vanished, within half a minute. nats-py's own
defaults take six minutes.
"""

SUBJECTS_OVERLAP: Final = 10065
"""JetStream's code for a stream whose subjects another stream has."""

NATS_SCHEMES: Final = ("nats", "tls", "ws", "wss")
"""The schemes of a NATS server's URL."""

log = get_logger()


@dataclass(frozen=True, slots=True)
class Stream:
    """The stream of all events: on disk, and dropping the oldest events first.

    Attributes:
        max_bytes: the stream's size.
        max_age_s: age of its oldest event.
        replicas: servers that keep it; more than 1 needs a cluster of at least this many servers.
    """

    max_bytes: int = MAX_BYTES
    max_age_s: float = MAX_AGE_S
    replicas: Replicas = 1

    def config(self) -> StreamConfig:
        """The stream's configuration for JetStream."""
        return StreamConfig(
            name=STREAM,
            subjects=[EVENTS],
            retention=RetentionPolicy.LIMITS,
            discard=DiscardPolicy.OLD,
            storage=StorageType.FILE,
            num_replicas=self.replicas,
            max_bytes=self.max_bytes,
            max_age=self.max_age_s,
            # The server refuses a window longer than an event lives.
            duplicate_window=min(DUPLICATE_WINDOW_S, self.max_age_s),
            # Readers fetch the last event per node without asking the stream's leader.
            allow_direct=True,
        )

    async def ensure(self, jetstream: JetStreamContext) -> StreamInfo:
        """Make the stream if it is missing, and return what the server says about it.

        A stream that exists is an operator's or another part's choice and is left as it is. Several parts may call
        this at once.

        Raises:
            nats.errors.Error: NATS is away, has no JetStream, lacks the space or the replicas, or has
                another stream for our subjects, which the message names.
        """
        try:
            found = await jetstream.stream_info(STREAM)
        except NotFoundError:
            try:
                found = await jetstream.add_stream(self.config())
                log.info(
                    "made the stream",
                    stream=STREAM,
                    max_bytes=self.max_bytes,
                    max_age_s=self.max_age_s,
                    replicas=self.replicas,
                )
            except BadRequestError as error:
                try:
                    # Another part may have made the stream meanwhile, with limits of its own.
                    found = await jetstream.stream_info(STREAM)
                except NotFoundError:
                    if error.err_code == SUBJECTS_OVERLAP:
                        error.description = f"{error.description}: {await _holder(jetstream)}"
                    raise error from None
        return found


async def _holder(jetstream: JetStreamContext) -> str:
    """The name of a stream that holds our subjects, for a message."""
    try:
        return str(await jetstream.find_stream_name_by_subject(EVENTS))
    except nats.errors.Error:
        return "its name is not shown to this user"
