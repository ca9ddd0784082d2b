"""gpushare's policy: prefer the GPU with the least free memory that still takes the container.

Source: "GPU Sharing in Kubernetes", the design of gpushare-scheduler-extender (Alibaba, 2019), §2.2: "GPU1 (8138),
which has the least remaining resources, is selected". There, free memory is the card's less all requests. Here it is
the ledger's headroom, so memory that is measured and not promised counts as used too.
"""

from dataclasses import dataclass
from typing import Final

from placer.core.policies.policy import Policy
from placer.core.room import Room
from plimsoll.demand import ContainerDemand
from plimsoll.quantity import GIB


@dataclass(frozen=True, slots=True)
class Binpack(Policy):
    """Prefers the GPU with the least free memory, in bytes, whatever the size of the card."""

    name: str = "binpack"

    def rank(self, room: Room) -> float:
        """1 ÷ (1 + free GiB): 1 on a full GPU, and towards 0 on a large empty one."""
        return 1 / (1 + max(room.free_bytes, 0) / GIB)

    def sub_scores(self, room: Room, demand: ContainerDemand) -> dict[str, float]:  # noqa: ARG002 - one interface
        """The score itself, which has one part."""
        return {"packed": round(self.rank(room), 6)}

    def score(self, room: Room, demand: ContainerDemand) -> float:  # noqa: ARG002 - one interface for all policies
        """The rank. After a first container of a pod it is higher, and the pod's score is the lowest of all."""
        return self.rank(room)


BINPACK: Final = Binpack()
