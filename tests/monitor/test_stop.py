"""The monitor ends at any moment."""

import asyncio
import random
from pathlib import Path

import pytest

from monitor import observer, settings
from monitor.app import run
from plimsoll_cli.demo.servers import EmbeddedServer
from tests.servers.waiting import PATIENCE_S


async def test_it_stops_at_whatever_moment(
    tmp_path: Path, nats: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A monitor stopped while it starts, connects, publishes or waits ends by itself, and the next one starts."""
    moments = random.Random(1)  # noqa: S311 - repeatable, not secret
    environment = {
        "PLIMSOLL_NODE": "node-1",
        "PLIMSOLL_NATS_URL": nats.url,
        "PLIMSOLL_STATE_DIR": str(tmp_path / "state"),
        "PLIMSOLL_BROKER_ROOT": str(tmp_path / "broker"),
        # The monitor publishes all the time.
        "PLIMSOLL_HEARTBEAT_S": "0.001",
    }
    for name in ("SAMPLE_S", "NVML_RETRY_S"):
        monkeypatch.setattr(observer, name, 0.001)
    for _ in range(20):
        stop = asyncio.Event()
        running = asyncio.create_task(run(settings.load(environment), stop))
        await asyncio.sleep(moments.uniform(0, 0.15))
        stop.set()
        async with asyncio.timeout(PATIENCE_S):
            await running
