"""Renews the reasons why parked pods wait, after nodes came, left or changed.

A parked pod is tried again only when a change could help it. Other changes make its condition's reasons untrue: a
node that was deleted, or a node more that does not fit. After a change of nodes, each kind of parked pods is
explained once, and each pod whose text differs gets the new text. What always holds: nothing is decided here.
Explanations and writes are paced, so that many changes, kinds or pods cost as much at a time as few.
"""

import asyncio
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Final, NoReturn

from placer.scheduler.failures.refusals import refusal_of
from placer.scheduler.plugins.default_preemption.preempting import Preempting
from placer.scheduler.pods.queued import QueuedPodInfo
from placer.scheduler.queue.queue import Queue
from plimsoll.ids import PodUid
from plimsoll.kube.models import Pod
from plimsoll.part.ending import heed_cancellation

GATHER_S: Final = 1.0
"""Seconds between the first change and the new texts: changes of many nodes come together."""
TEXT_PAUSE_S: Final = 0.02
"""Seconds between the new texts of two pods. Each is two writes to the API server."""
REST: Final = 4.0
"""The pause after a kind was explained, as a multiple of the time that this took: decisions go on meanwhile."""


@dataclass(slots=True)
class Renewal:
    """Renews the reasons of parked pods while `run` runs.

    Attributes:
        waiting: the pods without a node, by uid; the owner changes them.
        queue: the same pods, parked by kind.
        preempting: explains refusals.
        report: takes a pod and its new text.
    """

    waiting: Mapping[PodUid, QueuedPodInfo]
    queue: Queue
    preempting: Preempting
    report: Callable[[Pod, str], None]
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def note(self) -> None:
        """Note that a node came, left or changed."""
        self._changed.set()

    async def run(self) -> NoReturn:
        """Renew reasons until cancelled."""
        while True:
            heed_cancellation()
            await self._changed.wait()
            await asyncio.sleep(GATHER_S)  # changes of many nodes come together
            self._changed.clear()
            for kind in self.queue.kinds.waiting():
                await self._renew(kind)

    async def _renew(self, kind: Hashable) -> None:
        """Explain a kind of parked pods, and report the text for those of its pods that have another one."""
        members = self.queue.kinds.members(kind)
        info = next((one.info for uid in members if (one := self.waiting.get(uid)) and one.info), None)
        if info is None:
            return  # placed or gone meanwhile
        began_s = asyncio.get_running_loop().time()
        explained = await self.preempting.explain(info)
        spent_s = asyncio.get_running_loop().time() - began_s
        if explained is not None:  # else the kind is tried, as a node has a place by now or may get one
            refusal = refusal_of(info, explained, self.preempting.search.choice.profile.framework.cause)
            self.queue.reword(kind, refusal)
            for uid in members:
                waiting = self.waiting.get(uid)
                if waiting is None or waiting.refused_for == refusal.note:
                    continue
                if not self.queue.kinds.is_parked(uid, kind):
                    continue
                self.report(waiting.pod, refusal.note)
                await asyncio.sleep(TEXT_PAUSE_S)  # bounds the writes per second
        await asyncio.sleep(REST * spent_s)  # decisions have the rest of the time
