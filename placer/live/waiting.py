"""The pods without a node for the live page: the first of them, and the reasons of all.

What always holds: the summary has a bounded size, however many pods wait, and is made once for all readers. Other
tasks run between two pieces of the work.
"""

import asyncio
import heapq
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from placer.live.pods import PodSource
from plimsoll.placer_api.live import WaitingPod, WaitingPods

SHOWN: Final = 200
"""The most pods that are shown; nobody reads more rows on a page."""

REASONS_SHOWN: Final = 8
"""The most reasons that are counted on the page."""

LONGEST_REASON: Final = 600
"""The most characters of a reason: some lines. The explanation has the whole text."""

TOGETHER: Final = 256
"""Pods that are read in one piece: less than a millisecond."""

FRESH_S: Final = 1.0
"""The seconds for which a summary is good."""


class WaitingSummary:
    """The summary in JSON, made when a reader asks and the last one is too old."""

    def __init__(self, sources: Callable[[], Sequence[PodSource]]) -> None:
        self._sources = sources
        self._lock = asyncio.Lock()
        self._body: bytes | None = None
        self._made_s = 0.0

    async def read(self) -> bytes:
        """The `WaitingPods` of at most `FRESH_S` ago. Cancelling loses nothing."""
        async with self._lock:
            now_s = asyncio.get_running_loop().time()
            if self._body is None or now_s - self._made_s >= FRESH_S:
                self._body = msgspec.json.encode(await self._summary())
                self._made_s = now_s
            return self._body

    async def _summary(self) -> WaitingPods:
        total, reasons = 0, Counter[str]()
        first: list[tuple[tuple[int, str, str, str], WaitingPod]] = []
        piece: list[tuple[tuple[int, str, str, str], WaitingPod]] = []
        for source in self._sources():
            for pod in source.waiting():
                total += 1
                cut = msgspec.structs.replace(pod, reason=_cut(pod.reason))
                reasons[cut.reason] += 1
                piece.append((_rank(cut), cut))
                if len(piece) >= TOGETHER:
                    first = heapq.nsmallest(SHOWN, [*first, *piece], key=lambda one: one[0])
                    piece.clear()
                    await asyncio.sleep(0)  # decisions and watches run between two pieces
        first = heapq.nsmallest(SHOWN, [*first, *piece], key=lambda one: one[0])
        common = sorted(reasons.items(), key=lambda one: (-one[1], one[0]))[:REASONS_SHOWN]
        return WaitingPods(total=total, pods=tuple(pod for _, pod in first), reasons=tuple(common))


def _rank(pod: WaitingPod) -> tuple[int, str, str, str]:
    return -pod.priority, pod.since or "", pod.namespace, pod.name


def _cut(reason: str) -> str:
    return reason if len(reason) <= LONGEST_REASON else reason[: LONGEST_REASON - 1] + "…"
