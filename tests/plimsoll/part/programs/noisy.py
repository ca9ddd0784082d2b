"""A part whose libraries complain in every way that Python has, and which ends by an error nobody foresaw."""

import asyncio
import logging
import sys
import threading
import warnings
from collections.abc import Mapping
from dataclasses import dataclass

from plimsoll.part.entry import run_part


@dataclass(frozen=True)
class Settings:
    """No settings but the level."""

    log_level: str = "info"


def load(_: Mapping[str, str]) -> Settings:
    """The settings."""
    return Settings()


class _Dying:
    def __del__(self) -> None:
        raise ValueError("while it was collected")


async def _fail() -> None:
    raise ValueError("nobody waits for this task")


async def run(_: Settings, __: asyncio.Event) -> None:
    """Complain, and end."""
    logging.getLogger("nats.aio.client").error("a library's\nerror")
    logging.getLogger("aiohttp.access").info("a request")
    warnings.warn("a library's warning", DeprecationWarning, stacklevel=1)
    _Dying()

    def die() -> None:
        raise ValueError("in a thread")

    thread = threading.Thread(target=die)
    thread.start()
    await asyncio.to_thread(thread.join)
    task = asyncio.create_task(_fail())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    del task
    raise RuntimeError("nobody foresaw this")


if __name__ == "__main__":
    warnings.simplefilter("always")
    sys.exit(run_part("noisy", load, run, "help"))
