"""A part in whose process the lookup of a name hangs: `python … {stop | finish | refuse | fail}`.

It prints a line once the lookup has begun. Then it ends by a signal, by a bad setting, or by an error. With `finish`,
the lookup does not hang but takes until after the end of all tasks.
"""

import asyncio
import socket
import sys
import threading
import time
from dataclasses import dataclass
from typing import NoReturn

from plimsoll.part.entry import run_part
from plimsoll.part.errors import InputError

ending = sys.argv.pop()
begun = threading.Event()


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings that every part has."""

    log_level: str = "info"


def hang(*_: object, **__: object) -> NoReturn:
    """Look up a name as the C library does where no name server answers, but without an end."""
    begun.set()
    if ending == "finish":
        time.sleep(1)  # the signal comes meanwhile
        print("finished", flush=True)  # noqa: T201 - for the test
        sys.exit()  # ends this thread's work
    while True:
        threading.Event().wait()


async def run(_: Settings, stop: asyncio.Event) -> None:
    """Look up a name, and end as the argument says."""
    loop = asyncio.get_running_loop()
    async with asyncio.TaskGroup() as tasks:
        lookup = tasks.create_task(loop.getaddrinfo("nats.example", 4222))
        await asyncio.to_thread(begun.wait)
        print("begun", flush=True)  # noqa: T201 - for the test
        if ending == "refuse":
            raise InputError("a", "b", "is wrong", "mend it")
        if ending == "fail":
            raise RuntimeError("nobody foresaw this")
        await stop.wait()
        lookup.cancel()


socket.getaddrinfo = hang  # the loop's own lookup calls this, in a thread of its pool
sys.exit(run_part("hanging", lambda _: Settings(), run, ""))
