"""What the monitor tells the broker: what it may forget, and what NVML shows.

Neither ever waits in the monitor's loop: each has a task of its own, and only the newest counts.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

import structlog

from monitor.core.measured import measured
from plimsoll.broker.client import BrokerAwayError, BrokerClient, RefusedError
from plimsoll.broker.wire import Measured
from plimsoll.events import Gpu
from plimsoll.part.errors import PlimsollError

log = structlog.get_logger("monitor.broker")


class Acknowledger:
    """Tells the broker what it may forget, which is only given after what follows from it is on our disk.

    `run` it as a task.
    """

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


class Measurer:
    """Tells the broker what NVML shows; `run` it as a task, and tell it `looked` after each turn.

    Every look is sent, also where no task is hooked: a broker that has just started must know what its GPUs can hold
    before it lets anybody allocate on a node that overcommits. Where there is none, that is a look for its socket
    once a second.
    """

    def __init__(self, root: Path, away_s: float, presence: Callable[[bool], None]) -> None:
        """Begin.

        Args:
            root: the broker's root directory.
            away_s: a broker that takes nothing for so long is away.
            presence: is told after each attempt whether the broker is there.
        """
        self._client = BrokerClient(root, timeout_s=away_s)
        self._presence = presence
        self._newest: Measured | None = None
        self._wakened = asyncio.Event()

    def looked(self, gpus: tuple[Gpu, ...], began_ns: int) -> None:
        """A turn ended with these GPUs; none means that they could not be read, which tells nothing.

        Args:
            gpus: as NVML showed them.
            began_ns: CLOCK_MONOTONIC just before NVML was asked.
        """
        if not gpus:
            return
        self._newest = measured(gpus, began_ns)
        self._wakened.set()

    async def run(self) -> None:
        """Tell for ever; a look that did not arrive is replaced by the next."""
        try:
            while True:
                await self._wakened.wait()
                self._wakened.clear()
                assert self._newest is not None
                self._presence(await self._told(self._newest))
        finally:
            await self._client.close()

    async def _told(self, newest: Measured) -> bool:
        try:
            await self._client.measure(newest)
        except BrokerAwayError:
            return False
        except RefusedError as error:
            log.warning("the broker did not take a measurement in", error=str(error))
        return True
