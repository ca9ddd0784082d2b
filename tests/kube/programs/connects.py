"""Connects to the cluster of a kubeconfig, its argument, and ends with 1 if that imported the generated client."""

import asyncio
import sys
from pathlib import Path

from plimsoll.kube.client import connect


async def _connect() -> None:
    async with connect(Path(sys.argv[1])):
        pass


asyncio.run(_connect())
sys.exit("kubernetes" in sys.modules)
