"""The clock of this package's queues, pauses and limits: that of the event loop."""

import asyncio


def loop_now_s() -> float:
    """The current time of the running event loop, in seconds."""
    return asyncio.get_running_loop().time()
