"""What each container holds, was granted and was promised, per GPU.

What always holds: `ceiling_bytes` is the most that the container's processes may have reserved by now, whatever they
read when: it sinks only when the words were read after the lower grant was written.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from hook.broker.core.ids import ContainerKey
from hook.broker.core.memory.bank import Claim
from hook.broker.core.memory.policies.policy import Ticket
from plimsoll.ids import GpuUuid

PROMISE_S: Final = 10.0
"""A process that was told to go on reserves within milliseconds. What it has not reserved after this time, as it was
stopped perhaps, may go to others; it then waits again."""


@dataclass(slots=True)
class Holding:
    """One container on one GPU.

    Attributes:
        line_bytes: what it declared.
        used_bytes: by its words and its excess, as last read.
        granted_bytes: what its page says now: up to here it asks nobody.
        ceiling_bytes: see above.
        promises: granted to a waiter and not yet seen in use: bytes, and until when they are kept for it.
    """

    line_bytes: int
    used_bytes: int = 0
    granted_bytes: int = 0
    ceiling_bytes: int = 0
    promises: dict[Ticket, tuple[int, float]] = field(default_factory=dict)

    @property
    def floor_bytes(self) -> int:
        """What cannot be taken back: used or promised."""
        return self.used_bytes + sum(promised for promised, _ in self.promises.values())

    def read(self, used_bytes: int, now_s: float) -> None:
        """The words were read, later than the last grant was written."""
        self._keep_promises(used_bytes - self.used_bytes, now_s)
        self.used_bytes = used_bytes
        self.ceiling_bytes = max(used_bytes, self.granted_bytes)

    def grant(self, granted_bytes: int) -> None:
        """Another number goes onto the page."""
        self.granted_bytes = granted_bytes
        self.ceiling_bytes = max(self.ceiling_bytes, granted_bytes)

    def _keep_promises(self, grown_bytes: int, now_s: float) -> None:
        """What has grown is what was promised, oldest first: nobody else of this container had to wait."""
        for ticket, (promised, until_s) in list(self.promises.items()):
            kept = min(max(0, grown_bytes), promised)
            grown_bytes -= kept
            if kept == promised or until_s <= now_s:
                del self.promises[ticket]
            else:
                self.promises[ticket] = (promised - kept, until_s)


class Holdings:
    """Every enrolled container, in the order in which they came."""

    def __init__(self) -> None:
        self._by_container: dict[ContainerKey, dict[GpuUuid, Holding]] = {}
        self._enrolled: dict[ContainerKey, int] = {}
        self._enrolments = 0

    def enrol(
        self, container: ContainerKey, lines: Mapping[GpuUuid, int], granted: Mapping[GpuUuid, int]
    ) -> None:
        """Take a container in, or change its lines; `granted` is what a page of it says already."""
        if container not in self._enrolled:
            self._enrolled[container] = self._enrolments
            self._enrolments += 1
        known = self._by_container.get(container, {})
        self._by_container[container] = {
            gpu: known.get(gpu) or _adopted(line_bytes, granted.get(gpu, 0))
            for gpu, line_bytes in lines.items()
        }
        for gpu, line_bytes in lines.items():
            self._by_container[container][gpu].line_bytes = line_bytes

    def leave(self, container: ContainerKey) -> None:
        """Forget a container."""
        self._by_container.pop(container, None)
        self._enrolled.pop(container, None)

    def find(self, container: ContainerKey, gpu: GpuUuid) -> Holding | None:
        """What is known, or None."""
        return self._by_container.get(container, {}).get(gpu)

    def has_promise(self, container: ContainerKey) -> bool:
        """Whether a thread of it was told to go on and has not been seen to."""
        return any(holding.promises for holding in self._by_container.get(container, {}).values())

    def enrolled(self, container: ContainerKey) -> int:
        """A container's place in the order; lower is older."""
        return self._enrolled[container]

    def on(self, gpu: GpuUuid) -> dict[ContainerKey, Holding]:
        """Everyone with a line on this GPU, in order."""
        return {name: own[gpu] for name, own in self._by_container.items() if gpu in own}

    def gpus(self, container: ContainerKey) -> tuple[GpuUuid, ...]:
        """The GPUs on which a container has a line; none if it is not enrolled."""
        return tuple(self._by_container.get(container, ()))

    def connected(self, gpus: Iterable[GpuUuid]) -> frozenset[GpuUuid]:
        """These GPUs, those that share a container with them, and so on."""
        reached = set(gpus)
        while more := {
            gpu
            for own in self._by_container.values()
            if reached & own.keys()
            for gpu in own
            if gpu not in reached
        }:
            reached |= more
        return frozenset(reached)

    def items(self) -> list[tuple[ContainerKey, GpuUuid, Holding]]:
        """All of it, containers in order."""
        return [
            (name, gpu, holding) for name, own in self._by_container.items() for gpu, holding in own.items()
        ]

    def floors(self) -> dict[ContainerKey, dict[GpuUuid, Claim]]:
        """As if everything that can be taken back were."""
        return self._claims(lambda holding: holding.floor_bytes)

    def ceilings(self) -> dict[ContainerKey, dict[GpuUuid, Claim]]:
        """As if everyone used all that it may."""
        return self._claims(lambda holding: holding.ceiling_bytes)

    def _claims(self, held: Callable[[Holding], int]) -> dict[ContainerKey, dict[GpuUuid, Claim]]:
        return {
            name: {gpu: Claim(held(holding), holding.line_bytes) for gpu, holding in own.items()}
            for name, own in self._by_container.items()
        }


def _adopted(line_bytes: int, granted_bytes: int) -> Holding:
    return Holding(line_bytes, granted_bytes=granted_bytes, ceiling_bytes=granted_bytes)
