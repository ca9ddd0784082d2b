"""Identity and deaths of real processes on this machine."""

import asyncio
import os

from msgspec.structs import replace

from monitor.processes import Deaths, Identities, read_process
from plimsoll.ids import ProcessKey
from tests.monitor.harness import sleeping, until_true


async def test_a_death_is_reported_once_without_polling() -> None:
    """Two watches of one process report one death, and a living process is not reported."""
    dead: list[ProcessKey] = []
    deaths = Deaths(dead.append)
    async with sleeping() as (living, _), sleeping() as (process, child):
        deaths.watch([living, process])
        deaths.watch([process])
        child.kill()
        await until_true(lambda: dead)
        await child.wait()
        assert dead == [process]
        deaths.close()


async def test_a_process_dead_before_the_watch_is_reported_too() -> None:
    """A watch reports a process that is already dead, also if another process has its pid now."""
    dead: list[ProcessKey] = []
    deaths = Deaths(dead.append)
    async with sleeping() as (process, child):
        child.kill()
        await child.wait()
    ourselves = await asyncio.to_thread(read_process, os.getpid())
    assert ourselves is not None
    earlier = replace(ourselves, start_ticks=ourselves.start_ticks - 1)
    deaths.watch([process, earlier])
    assert dead == [process, earlier]
    deaths.close()


def test_only_the_living_are_identified() -> None:
    """This process is identified, outside any pod; a zombie and an unused pid are not."""
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)  # The child stays a zombie.
    try:
        found = Identities().of({os.getpid(), child, 2**22 + 1}, {})
        assert found.keys() == {os.getpid()}
        assert found[os.getpid()][1].pod is None
    finally:
        os.waitpid(child, 0)
