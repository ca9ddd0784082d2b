"""Messages of a plain subscription, whose reader outlives every outage of NATS."""

import asyncio
from typing import Final

import nats.errors
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from plimsoll.part.ending import heed_cancellation
from plimsoll.part.log import get_logger

AGAIN_S: Final = 1.0
"""The pause in seconds after a message could not be read: NATS is away, or the client library dropped messages."""

log = get_logger()


async def next_message(subscription: Subscription, failure: str) -> Msg:
    """Wait for the next message, for ever.

    Args:
        subscription: it stays, also while NATS is away.
        failure: the log line for each time that no message could be read.
    """
    while True:
        heed_cancellation()
        try:
            return await subscription.next_msg(timeout=None)
        except nats.errors.Error as error:
            log.warning(failure, error=f"{type(error).__name__}: {error}")
            await asyncio.sleep(AGAIN_S)
