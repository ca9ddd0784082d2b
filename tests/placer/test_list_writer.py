"""The writer of the sorted list at its end."""

import asyncio
import contextlib
from collections.abc import Iterable
from typing import cast

from placer.core.ledger import Ledger
from placer.decide import Decider
from placer.list_writer import ListWriter
from placer.metrics import Metrics
from placer.reports import ReportView
from placer.scores import ScoreList
from plimsoll.events import NodeState
from plimsoll.ids import NodeName


class SwallowingScores:
    """A list whose client loses a cancellation that comes with the answer, as redis-py does on Python 3.11."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def fill(self, _states: Iterable[NodeState]) -> None:
        """Write nothing."""

    async def orders(self) -> dict[NodeName, tuple[int, int]]:
        """Answer once the caller is cancelled."""
        self.asked.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return {}


async def test_writer_whose_cancellation_was_swallowed_while_it_filled_the_list_ends() -> None:
    """The writer ends at the next step that heeds cancellations, before it waits for its own tasks."""
    scores = SwallowingScores()
    decider = Decider(ReportView(), Ledger(), Metrics())
    writing = asyncio.create_task(ListWriter(cast("ScoreList", scores), decider, check_s=60).run())
    await scores.asked.wait()
    writing.cancel()
    done, _ = await asyncio.wait([writing], timeout=10)
    assert done == {writing}
    assert writing.cancelled()
