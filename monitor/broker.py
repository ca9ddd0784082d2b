"""The monitor's requests to the broker: acknowledgements of announcements, and NVML's measurements.

Neither ever waits in the monitor's loop. Each has a task of its own, which sends only the newest request.
"""

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import msgspec

from plimsoll.broker.client import BrokerAwayError, BrokerClient, RefusedError
from plimsoll.broker.wire import Measured, MeasuredGpu, MeasuredProcess
from plimsoll.events import Gpu, Task
from plimsoll.gpu_events import GpuHealth
from plimsoll.part.errors import PlimsollError
from plimsoll.part.log import get_logger

ACKNOWLEDGE_S: Final = 0.5
"""Seconds between two acknowledgements, at least: one covers all announcements before it, and each costs the broker a
turn and a line of its journal."""

MEASURE_S: Final = 0.25
"""Seconds between two measurements, at least: the broker compares each with the words of all processes, in some
milliseconds."""

log = get_logger()


class Acknowledger:
    """Lets the broker forget announcements, once the events that follow from them are on our disk.

    `run` it as a task.
    """

    def __init__(self, root: Path) -> None:
        self._client = BrokerClient(root)
        self._wanted = 0
        self._wakened = asyncio.Event()

    def acknowledge(self, seq: int) -> None:
        """Acknowledge every announcement up to `seq`."""
        self._wanted = seq
        self._wakened.set()

    async def run(self) -> None:
        """Acknowledge for ever. The next acknowledgement covers one that did not reach the broker."""
        try:
            while True:
                await self._wakened.wait()
                self._wakened.clear()
                try:
                    await self._client.acknowledge(self._wanted)
                except PlimsollError as error:
                    log.info("the broker did not take an acknowledgement", seq=self._wanted, error=str(error))
                await asyncio.sleep(ACKNOWLEDGE_S)
        finally:
            await self._client.close()


AWAY_S: Final = 10.0
"""A broker that takes no measurement for this long counts as away. `limit.unenforced` events then name its hooked
tasks."""


class Measurer:
    """Sends NVML's measurements to the broker. `run` it as a task, and call `send` after each round.

    Every measurement is sent, also where no task is hooked. On a node that overcommits, a broker that has just
    started must know its GPUs' usable memory before it grants any allocation. Where no broker runs, this costs one
    attempt a second to open its socket.
    """

    def __init__(self, root: Path, presence: Callable[[bool], None]) -> None:
        """Begin.

        Args:
            root: the broker's root directory.
            presence: called after each attempt, with whether the broker is there.
        """
        self._client = BrokerClient(root, timeout_s=AWAY_S)
        self._presence = presence
        self._newest: Measured | None = None
        self._health: tuple[GpuHealth, ...] = ()
        self._wakened = asyncio.Event()

    def set_unhealthy(self, unhealthy: Iterable[GpuHealth]) -> None:
        """Send these GPUs' health with each measurement from now on."""
        self._health = tuple(unhealthy)

    def send(self, gpus: tuple[Gpu, ...], began_ns: int) -> None:
        """Send this measurement next.

        Args:
            gpus: the GPUs as NVML showed them; those that cannot be read are left out.
            began_ns: the machine's clock just before NVML was read.
        """
        self._newest = msgspec.structs.replace(measurement(gpus, began_ns), health=self._health)
        self._wakened.set()

    async def run(self) -> None:
        """Send for ever. The next measurement replaces one that did not reach the broker."""
        try:
            while True:
                await self._wakened.wait()
                self._wakened.clear()
                assert self._newest is not None
                self._presence(await self._sent(self._newest))
                await asyncio.sleep(MEASURE_S)
        finally:
            await self._client.close()

    async def _sent(self, newest: Measured) -> bool:
        try:
            await self._client.measure(newest)
        except BrokerAwayError:
            return False
        except RefusedError as error:
            log.warning("the broker did not take a measurement in", error=str(error))
        return True


def measurement(gpus: Iterable[Gpu], began_ns: int) -> Measured:
    """The GPUs as the broker compares them with its processes' own counts.

    A task without memory was announced and is not listed by NVML yet, so it is left out.

    Args:
        gpus: the GPUs as NVML showed them.
        began_ns: the machine's clock just before NVML was read.
    """
    gpus = tuple(gpus)
    return Measured(
        began_ns=began_ns,
        gpus=tuple(
            MeasuredGpu(gpu=gpu.uuid, usable_bytes=gpu.usable_bytes, used_bytes=gpu.used_bytes)
            for gpu in gpus
        ),
        processes=tuple(_measured_process(task) for gpu in gpus for task in gpu.tasks if task.used_bytes > 0),
    )


def _measured_process(task: Task) -> MeasuredProcess:
    return MeasuredProcess(
        pid=task.pid,
        start_ticks=task.start_ticks,
        gpu=task.gpu,
        used_bytes=task.used_bytes,
        pod=task.pod,
        container=task.container,
    )
