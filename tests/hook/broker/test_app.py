"""The broker runs in the test's own loop, where a call that blocks the loop fails the test."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hook.broker import app
from hook.broker.app import run
from hook.broker.settings import PREFIX, Settings
from plimsoll.part.errors import InputError
from plimsoll.part.settings import load
from tests.hook.broker.conftest import (
    GIB,
    GPUS,
    POD,
    Broker,
    registration,
    until,
)
from tests.servers.waiting import PATIENCE_S


@contextlib.asynccontextmanager
async def _running(settings: Settings) -> AsyncIterator[None]:
    stop = asyncio.Event()
    task = asyncio.create_task(run(settings, stop))
    try:
        yield
    finally:
        stop.set()
        async with asyncio.timeout(PATIENCE_S):
            await task


async def test_a_whole_life_never_blocks_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Registration, greeting, work, description, audit, death, restart and removal do not block the loop."""
    settings = Settings(root=str(tmp_path / "root"), http_port=0)
    monkeypatch.setattr(app, "AUDIT_S", 0.05)
    outside = Broker(tmp_path / "root", {})  # for its directories and client; not started
    try:
        async with _running(settings):
            await outside.client.register(registration())
            process = await outside.spawn()
            await process.begin(GIB)
            await process.do(f"send context {GPUS[0]}")
            await process.do("work 0.5")
            assert [entry.what for entry in await outside.announced(2)] == ["hello", "context"]
            assert await outside.process_count() == 1
        async with _running(settings):
            await outside.client.register(registration(2 * GIB))
            await process.do("work 0.5")
            await process.kill()
            resized = ["resized", "resized"]  # the new line, on each GPU
            assert [entry.what for entry in (await outside.announced(5))[2:]] == [*resized, "exited"]
            await outside.client.acknowledge(5)
            await outside.client.unregister(POD)
            await until(lambda: _is_removed(outside), "directories removed")
    finally:
        await outside.client.close()
        await outside.close()


@pytest.mark.parametrize(
    ("name", "value"),
    [("WAIT_LONGEST_S", "0"), ("WAIT_LONGEST_S", "soon"), ("HTTP_PORT", "70000")],
)
def test_a_setting_that_cannot_work_is_refused(name: str, value: str) -> None:
    """The refusal names the variable and its value."""
    with pytest.raises(InputError) as refused:
        load(Settings, {PREFIX + name: value}, PREFIX)
    assert str(refused.value).startswith(f"PLIMSOLL_BROKER_{name}: {value!r}")


async def test_a_root_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    """A file in the root directory's place is named, with the remedy."""
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"PLIMSOLL_BROKER_ROOT: .* cannot be used .*; run as root, or set"):
        await run(Settings(root=str(tmp_path / "file/root")), asyncio.Event())


async def _is_removed(broker: Broker) -> bool:
    return not (broker.root / "limits" / POD).exists()
