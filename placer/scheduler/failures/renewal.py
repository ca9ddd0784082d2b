"""Renews the reasons why unschedulable pods wait, after nodes came, left or changed.

An unschedulable pod is tried again only when a change could help it. Other changes make its condition's reasons
untrue: a node that was deleted, or a node more that does not fit. After a change of nodes, the pods of each signature
are explained once, and each pod whose text differs gets the new text. What always holds: nothing is decided here.
Explanations and writes are paced, so that many changes, signatures or pods cost as much at a time as few.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NoReturn

from placer.scheduler.failures.handler import diagnosis_of
from placer.scheduler.preemption.post_filter import DefaultPreemption
from placer.scheduler.queue.queue import Queue
from placer.scheduler.queue.queued_pod import SignatureClass
from plimsoll.kube.models import Pod
from plimsoll.part.ending import heed_cancellation

GATHER_S: Final = 1.0
"""Seconds between the first change and the new texts: changes of many nodes come together."""
TEXT_PAUSE_S: Final = 0.02
"""Seconds between the new texts of two pods. Each is two writes to the API server."""
REST: Final = 4.0
"""The pause after a signature was explained, as a multiple of the time that this took: decisions go on meanwhile."""


@dataclass(slots=True)
class Renewal:
    """Renews the reasons of unschedulable pods while `run` runs.

    Attributes:
        queue: the pods without a node.
        preemption: explains refusals.
        report: takes a pod and its new text.
    """

    queue: Queue
    preemption: DefaultPreemption
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
            for alike in tuple(self.queue.unschedulable):
                await self._renew(alike)

    async def _renew(self, alike: SignatureClass) -> None:
        """Explain the pods of one signature, and report the text for those of them that have another one."""
        pods = alike.pods.first()
        info = next((one.info for one in pods if one.info), None)
        if info is None:
            return  # none waits, or they were placed or are gone meanwhile
        began_s = asyncio.get_running_loop().time()
        explained = await self.preemption.explain(info)
        spent_s = asyncio.get_running_loop().time() - began_s
        if explained is not None:  # else one is tried, as a node has a place by now or may get one
            diagnosis = diagnosis_of(
                info, explained, self.preemption.search.scheduling.profile.framework.cause
            )
            self.queue.unschedulable.renew(alike, diagnosis)
            for one in pods:
                if one.alike is alike and one.is_unschedulable and one.refused_for != diagnosis.note:
                    self.report(one.pod, diagnosis.note)
                    await asyncio.sleep(TEXT_PAUSE_S)  # bounds the writes per second
        await asyncio.sleep(REST * spent_s)  # decisions have the rest of the time
