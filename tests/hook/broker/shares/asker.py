"""A process that reads NVML as the broker does, on the node of its environment, and prints the figures.

It calls `Utilisation` once for each line `use` of its standard input.
"""

import asyncio
import sys

import msgspec

from hook.broker.shares.utilisation import Utilisation
from plimsoll.ids import GpuUuid
from plimsoll.nvml.thread import DriverThread


async def main() -> None:
    """Obey commands until the input ends."""
    driver = DriverThread()
    utilisation = Utilisation(driver)
    while line := (await asyncio.to_thread(sys.stdin.readline)).split():
        used = await utilisation.ask()
        assert line == ["use"]
        _write([[gpu, pid, each.busy_pct, each.began_us, each.ended_us] for (gpu, pid), each in used.items()])
    await driver.close()


def _write(found: list[list[GpuUuid | int | float]]) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(found) + b"\n")
    sys.stdout.buffer.flush()


asyncio.run(main())
