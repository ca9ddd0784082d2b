"""The broker's side of the gates in one process: what it does when the scheduler fails, and how much it hears."""

import asyncio
import os
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
import structlog

from hook.broker.core.datagram import ShareReport
from hook.broker.core.facts import ContainerKey
from hook.broker.core.shares.scheduler import Scheduler
from hook.broker.core.shares.settings import ShareSettings
from hook.broker.core.shares.turns import Reported, ShareEvent, ShareInstruction
from hook.broker.gates import Pace, open_gate
from hook.broker.processes import read_process
from hook.broker.share_talk import AT_ONCE, REPORTS_PER_S, Allowance
from hook.broker.shares import Shares
from plimsoll.brokerwire import ContainerLines, Line
from plimsoll.layout import GATE_METERED, GATE_SHUT
from plimsoll.names import PodUid
from tests.hook.broker.conftest import GPUS, MAIN
from tests.hook.broker.gateview import GateView

HERE = ContainerKey(PodUid("here"), MAIN)


class FailingScheduler(Scheduler):
    """A scheduler that does not survive the first report."""

    has_failed = False

    def handle(self, event: ShareEvent) -> list[ShareInstruction]:
        """As ever, but once."""
        if isinstance(event, Reported) and not FailingScheduler.has_failed:
            FailingScheduler.has_failed = True
            raise ZeroDivisionError
        return super().handle(event)


@pytest.fixture(name="shares")
async def _shares(tmp_path: Path) -> AsyncIterator[Shares]:
    shares = Shares(partial(FailingScheduler, ShareSettings()), lambda _: tmp_path / "counts", lambda _: None)
    lines = ContainerLines(name=MAIN, lines=(Line(gpu=GPUS[0], line_bytes=1, share_pct=20, limit_pct=50),))
    shares.join(HERE, lines, await asyncio.to_thread(open_gate, tmp_path, Pace(2000, 500)))
    yield shares
    shares.close()


async def test_a_scheduler_that_fails_leaves_nobody_waiting(shares: Shares, tmp_path: Path) -> None:
    """The report on which it failed is lost; the gate shows another word, and who reports again is let through."""
    gate = await asyncio.to_thread(GateView, tmp_path)
    myself = await asyncio.to_thread(read_process, os.getpid())
    assert myself is not None
    wanting = partial(ShareReport, slot=0, owner=myself.owner, wants=True, unfinished=False)
    first = wanting(gate_word=gate.word, busy_ns=0, busy_since_ns=0, idle_since_ns=0)
    sharer = await shares.introduce(HERE, os.getpid(), first)
    assert gate.state == GATE_SHUT
    with structlog.testing.capture_logs() as logged:
        shares.report(sharer, first)
    assert [line["event"] for line in logged] == ["scheduler_failed"]
    assert gate.state == GATE_SHUT
    assert gate.word != first.gate_word
    shares.report(sharer, wanting(gate_word=gate.word, busy_ns=0, busy_since_ns=0, idle_since_ns=0))
    assert gate.state == GATE_METERED


def test_an_allowance_bounds_what_is_heard() -> None:
    """At once so many, and then so many a second: whoever sends more waits, and no longer than that."""
    allowance = Allowance()
    assert max(allowance.spend(0.0) for _ in range(AT_ONCE)) == pytest.approx(0)
    heard, now_s = 0, 0.0
    while now_s < 10:
        now_s += allowance.spend(now_s)
        heard += 1
    assert heard == pytest.approx(10 * REPORTS_PER_S, rel=0.01)
    assert allowance.spend(now_s + 1) == 0.0
