"""The processes that report: who they are, and what is held open for them."""

import asyncio
import os
from pathlib import Path

import pytest

from hook.broker import sharers as module
from hook.broker.core.datagram import ShareReport
from hook.broker.core.facts import ContainerKey
from hook.broker.processes import read_process
from hook.broker.sharers import Sharers
from plimsoll.names import PodUid
from tests.hook.broker.conftest import MAIN, until

HERE = ContainerKey(PodUid("one"), MAIN)


def _open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_who_goes_while_it_is_looked_for_leaves_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection ends, with its container, before its process was found: no handle and no file stays open."""
    path = tmp_path / "counts"
    await asyncio.to_thread(path.write_bytes, b"")
    myself = await asyncio.to_thread(read_process, os.getpid())
    assert myself is not None
    look, found = module._find, []

    def noted(pid: int, counts: Path) -> object:
        found.append(look(pid, counts))
        return found[-1]

    monkeypatch.setattr(module, "_find", noted)
    report = ShareReport(
        slot=0, owner=myself.owner, wants=True, unfinished=False, gate_word=0, busy_ns=0, busy_since_ns=0,
        idle_since_ns=0,
    )  # fmt: skip
    sharers = Sharers(lambda _: path, lambda _: None)
    before = await asyncio.to_thread(_open_files)
    for _ in range(20):
        asking = asyncio.create_task(sharers.introduce(HERE, os.getpid(), report))
        await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking

    async def all_are_closed() -> bool:
        return len(found) == 20 and await asyncio.to_thread(_open_files) <= before

    await until(all_are_closed, "everything closed")
    sharers.close()
