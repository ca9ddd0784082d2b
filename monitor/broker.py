"""Our word to the broker that it may forget announcements: given only after what follows from them is on our disk."""

import asyncio
from pathlib import Path

import structlog

from plimsoll.brokerclient import BrokerClient
from plimsoll.errors import PlimsollError

log = structlog.get_logger("monitor.broker")


class Acknowledger:
    """Tells the broker what it may forget; `run` it as a task. Only the newest number counts."""

    def __init__(self, root: Path) -> None:
        self._client = BrokerClient(root)
        self._wanted = 0
        self._wakened = asyncio.Event()

    def acknowledge(self, seq: int) -> None:
        """Everything up to `seq` is safe."""
        self._wanted = seq
        self._wakened.set()

    async def run(self) -> None:
        """Acknowledge for ever. What the broker did not hear is heard with the next one."""
        try:
            while True:
                await self._wakened.wait()
                self._wakened.clear()
                try:
                    await self._client.acknowledge(self._wanted)
                except PlimsollError as error:
                    log.info("the broker did not take an acknowledgement", seq=self._wanted, error=str(error))
        finally:
            await self._client.close()
