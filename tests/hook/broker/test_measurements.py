"""A broker measures by itself where no monitor does."""

import asyncio
from pathlib import Path

import pytest

from tests.hook.broker.conftest import Broker, registration, until


async def test_a_machine_without_nvml_costs_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broker: Broker
) -> None:
    """Without NVML the broker logs one line for any number of processes, which run within their counts."""
    await broker.stop()
    (tmp_path / "libnvidia-ml.so.1").write_bytes(b"")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    await broker.start(measure="true")
    await broker.client.register(registration())
    for count in range(1, 4):
        process = await broker.spawn()
        await process.begin()
        await broker.announced(count)

    async def is_said() -> bool:
        return bool(broker.log("not_measured"))

    await until(is_said, "the broker says that it cannot measure")
    assert len(broker.log("not_measured")) == 1


async def test_a_broker_that_does_not_measure_asks_no_driver(broker: Broker) -> None:
    """On a cluster, where the monitor measures, the broker does not load NVML."""
    await broker.client.register(registration())
    process = await broker.spawn()
    await process.begin()
    await broker.announced(1)
    maps = await asyncio.to_thread(Path(f"/proc/{broker.pid}/maps").read_text)
    assert "nvidia-ml" not in maps
    assert not broker.log("not_measured")
