"""The readiness of the placer: the things that it lacks for its work at this moment. And the end of its work.

A placer that lacks something for less than `GRACE_S`, as after an answer that was lost, is ready all the same.
"""

import asyncio
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import structlog
from nats.aio.client import Client

from placer.intake.intake import Intake
from plimsoll.kube.lease import Lease

if TYPE_CHECKING:
    from placer.kube.parts import KubeParts


GRACE_S: Final = 5.0
"""Seconds without a live watch, or without an answer about reports or the lease, after which the placer is not ready.
Shorter times also pass while everything is well: a request for reports that finds none, or the pause after an answer
that was lost, takes 2 s, and the next answer must have time to come."""

FINISH_S: Final = 1.0
"""How long writes that are under way at a signal may keep the placer from ending. Each takes milliseconds. A write
that is cut off is in doubt, and the Lease is left to expire then."""

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class KubePart:
    """The front end for Kubernetes as the other parts see it.

    Attributes:
        leads: set once this placer is the one that places.
        parts: None until the connection was made.
        lease: likewise.
    """

    leads: asyncio.Event = field(default_factory=asyncio.Event)
    parts: "KubeParts | None" = None
    lease: Lease | None = None

    def missing(self) -> list[str]:
        """The things of the cluster that the placer lacks now."""
        missing = []
        if self.parts is None or not self.parts.synced.is_set():
            missing.append("pods, nodes and volumes are still being read")
        elif self.parts.watches.broken_s() > GRACE_S:
            missing.append("a watch of pods, nodes or volumes is broken")
        # A placer asks for the lease once it has read all reports. Until then another line names what is missing.
        if self.lease is not None:
            # A lease of a longer duration is read less often, and is held until its deadline.
            grace_s = max(GRACE_S, self.lease.timing.deadline_s)
            if grace_s < self.lease.silent_s() < math.inf:
                missing.append("the API server does not answer about the lease")
        return missing

    async def finish(self) -> None:
        """Decide on no further pod, and let the writes under way end, for `FINISH_S` at most."""
        if self.parts is None:
            return
        try:
            async with asyncio.timeout(FINISH_S):
                await self.parts.finish()
        except TimeoutError:
            log.warning("writes are cut off, the API server has not answered in time", limit_s=FINISH_S)


def lacking(client: Client, intake: Intake, cluster: KubePart | None) -> list[str]:
    """The things that the placer lacks for its work at this moment, for people."""
    missing = []
    if not client.is_connected:
        missing.append("NATS is out of reach")
    if not intake.ready.is_set():
        missing.append("the last reports are still being read")
    elif intake.silent_s() > GRACE_S:
        missing.append("reports are not being read")
    return missing + (cluster.missing() if cluster else [])
