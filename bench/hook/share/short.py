"""Short programs, one after another in one container, must not be refused memory because of a dead one.

Each fits the container's line alone, and no two do. They start as fast as one process can start them.
"""

import asyncio
import json
import os
from pathlib import Path
from typing import Final

from bench.hook.share.shared_node import SharedNode
from bench.hook.share.tenants import PATIENCE_S, Json, NoAnswerError, Tenant, Workload
from tests.hook.lib.program import compiled

TENANT: Final = Tenant("short", Workload("sync", 1), 100, line_mib=500)
PROGRAM_MIB: Final = 364
PROGRAMS: Final = 1000
QUICK_PROGRAMS: Final = 100
EACH_S: Final = 1.0
"""The most time that a program's whole life may take."""


async def measure(here: SharedNode, *, quick: bool) -> Json:
    """Start all programs, and count the refusals."""
    pod = await here.register(TENANT)
    answer = await _answer(
        here.environment(pod, here.node()), compiled("share_short"), QUICK_PROGRAMS if quick else PROGRAMS
    )
    await here.broker.client.unregister(pod)
    return {
        "case": "sequential",
        "programs": answer["programs"],
        "sequential_false_refusals": answer["refused"] + answer["failed"],
        "load": round(os.getloadavg()[0], 2),
    }


async def _answer(environment: dict[str, str], program: Path, programs: int) -> Json:
    process = await asyncio.create_subprocess_exec(
        program, str(PROGRAM_MIB), str(programs), env=environment, stdout=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(PATIENCE_S + programs * EACH_S):
            result, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        raise
    if process.returncode:
        raise NoAnswerError(f"the starter of short programs ended with {process.returncode}")
    answer: Json = json.loads(result)
    return answer
