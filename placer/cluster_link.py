"""The placer's link to its cluster. Until the connection is made, it has no parts."""

import asyncio
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from plimsoll.kube.lease import Lease
from plimsoll.part.log import get_logger

if TYPE_CHECKING:
    from placer.kube.parts import KubeParts

FINISH_S: Final = 1.0
"""How long writes that are under way at a signal may keep the placer from ending. Each takes milliseconds. A write
that is cut off is in doubt, and the Lease is left to expire then."""

log = get_logger()


@dataclass(slots=True)
class ClusterLink:
    """The front end for Kubernetes as the other parts see it.

    Attributes:
        leads: set once this placer is the one that places.
        parts: None until the connection was made.
        lease: likewise.
        address: the URL at which this placer's port can be reached from others; empty where it has none.
    """

    leads: asyncio.Event = field(default_factory=asyncio.Event)
    parts: "KubeParts | None" = None
    lease: Lease | None = None
    address: str = ""

    def leader(self) -> str | None:
        """The URL of the placer that leads; None where this one does, or none is known."""
        return self.lease.leader_address if self.lease is not None and not self.leads.is_set() else None

    def missing(self, grace_s: float) -> list[str]:
        """The things of the cluster that the placer has lacked for longer than `grace_s`."""
        missing = []
        if self.parts is None or not self.parts.synced.is_set():
            missing.append("pods, nodes and volumes are still being read")
        elif self.parts.watches.broken_s() > grace_s:
            missing.append("a watch of pods, nodes or volumes is broken")
        # A placer asks for the lease once it has read all reports. Until then another line names what is missing.
        if self.lease is not None:
            # A lease of a longer duration is read less often, and is held until its deadline.
            longest_s = max(grace_s, self.lease.timing.deadline_s)
            if longest_s < self.lease.silent_s() < math.inf:
                missing.append("the API server does not answer about the lease")
        return missing

    def paused(self) -> list[str]:
        """A line for people while placing is paused."""
        text = None if self.parts is None else self.parts.core.profile.cache.paused
        return [] if text is None else [text.removeprefix("node(s) take no pods while ")]

    async def finish(self) -> None:
        """Decide on no further pod, and let the writes under way end, for `FINISH_S` at most."""
        if self.parts is None:
            return
        try:
            async with asyncio.timeout(FINISH_S):
                await self.parts.finish()
        except TimeoutError:
            log.warning("writes are cut off, the API server has not answered in time", limit_s=FINISH_S)
