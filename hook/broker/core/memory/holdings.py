"""The bytes that each container uses, was granted and was promised, per GPU.

What always holds: `ceiling_bytes` is the most that the container's processes may have reserved by now, at whatever
time they read their page. It sinks only after a reading of the words that followed the write of a lower grant.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from hook.broker.core.ids import ContainerKey
from hook.broker.core.memory.policies.policy import WaitTicket
from hook.broker.core.memory.safe_state import MemoryClaim
from plimsoll.ids import GpuUuid

LASTING_S: Final = 15.0
"""Seconds for which a GPU must have had less until the difference counts as gone: three measurements of a node at
rest."""


class Capacities:
    """The capacities of a node's GPUs.

    Attributes:
        latest: bytes by GPU, as last measured; a GPU that was never measured is missing.
        lasting: the same, but a lower number counts only after `LASTING_S`.
    """

    def __init__(self) -> None:
        self.latest: dict[GpuUuid, int] = {}
        self.lasting: dict[GpuUuid, int] = {}
        self._most: dict[GpuUuid, int] = {}  # the most since it fell below the lasting bytes
        self._since_s: dict[GpuUuid, float] = {}

    def measure(self, gpu: GpuUuid, usable_bytes: int) -> None:
        """Take in a measurement of one GPU."""
        self.latest[gpu] = usable_bytes
        if usable_bytes < self.lasting.get(gpu, 0):
            self._most[gpu] = max(usable_bytes, self._most.get(gpu, 0))
        else:
            self.lasting[gpu] = usable_bytes
            self._most.pop(gpu, None)
            self._since_s.pop(gpu, None)

    def pass_time(self, now_s: float) -> None:
        """Let lower numbers count that have lasted for `LASTING_S` by `now_s`, in seconds."""
        for gpu, most_bytes in list(self._most.items()):
            if now_s - self._since_s.setdefault(gpu, now_s) >= LASTING_S:
                self.lasting[gpu] = most_bytes
                del self._most[gpu], self._since_s[gpu]
                self.measure(gpu, self.latest[gpu])


PROMISE_S: Final = 10.0
"""Seconds for which granted memory is kept for a request. A process that goes on reserves its bytes within
milliseconds. After this time other containers may get the bytes. The process, which may be stopped, waits again."""


@dataclass(slots=True)
class Holding:
    """A container on a GPU.

    Attributes:
        line_bytes: the container's line.
        used_bytes: its words and its excess together, as last read.
        granted_bytes: the number on its page: up to here its processes do not ask the broker.
        ceiling_bytes: see the module.
        promises: grants to waiting requests that are not in use yet: the bytes, and the time (in seconds) until which
            they are kept.
    """

    line_bytes: int
    used_bytes: int = 0
    granted_bytes: int = 0
    ceiling_bytes: int = 0
    promises: dict[WaitTicket, tuple[int, float]] = field(default_factory=dict)

    @property
    def floor_bytes(self) -> int:
        """The bytes that cannot be taken back: used or promised."""
        return self.used_bytes + sum(promised for promised, _ in self.promises.values())

    def read(self, used_bytes: int, now_s: float) -> None:
        """Take in a reading of the words that followed the write of the last grant."""
        self._keep_promises(used_bytes - self.used_bytes, now_s)
        self.used_bytes = used_bytes
        self.ceiling_bytes = max(used_bytes, self.granted_bytes)

    def grant(self, granted_bytes: int) -> None:
        """Note another number for the page."""
        self.granted_bytes = granted_bytes
        self.ceiling_bytes = max(self.ceiling_bytes, granted_bytes)

    def _keep_promises(self, grown_bytes: int, now_s: float) -> None:
        """Count growth as promised bytes, oldest promise first: only granted requests could grow."""
        for ticket, (promised, until_s) in list(self.promises.items()):
            kept = min(max(0, grown_bytes), promised)
            grown_bytes -= kept
            if kept == promised or until_s <= now_s:
                del self.promises[ticket]
            else:
                self.promises[ticket] = (promised - kept, until_s)


class Holdings:
    """Every enrolled container, in the order of enrolment."""

    def __init__(self) -> None:
        self._by_container: dict[ContainerKey, dict[GpuUuid, Holding]] = {}
        self._enrolled: dict[ContainerKey, int] = {}
        self._enrolments = 0

    def enrol(
        self, container: ContainerKey, lines: Mapping[GpuUuid, int], granted: Mapping[GpuUuid, int]
    ) -> None:
        """Take a container in, or change its lines; `granted` holds the bytes that its page grants already."""
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
        """A container's holding on a GPU; None where it has no line there."""
        return self._by_container.get(container, {}).get(gpu)

    def has_promise(self, container: ContainerKey) -> bool:
        """Whether a request of the container was granted and the bytes are not in use yet."""
        return any(holding.promises for holding in self._by_container.get(container, {}).values())

    def enrolled(self, container: ContainerKey) -> int:
        """A container's place in the order; lower is older."""
        return self._enrolled[container]

    def on(self, gpu: GpuUuid) -> dict[ContainerKey, Holding]:
        """Every container with a line on this GPU, in order."""
        return {name: own[gpu] for name, own in self._by_container.items() if gpu in own}

    def gpus(self, container: ContainerKey) -> tuple[GpuUuid, ...]:
        """The GPUs on which a container has a line; empty if it is not enrolled."""
        return tuple(self._by_container.get(container, ()))

    def connected(self, gpus: Iterable[GpuUuid]) -> frozenset[GpuUuid]:
        """These GPUs, the GPUs that share a container with them, and so on."""
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
        """Every holding, containers in order."""
        return [
            (name, gpu, holding) for name, own in self._by_container.items() for gpu, holding in own.items()
        ]

    def floors(self) -> dict[ContainerKey, dict[GpuUuid, MemoryClaim]]:
        """The claims after all bytes were taken back that can be taken back."""
        return self._claims(lambda holding: holding.floor_bytes)

    def ceilings(self) -> dict[ContainerKey, dict[GpuUuid, MemoryClaim]]:
        """The claims if every container uses all that it may."""
        return self._claims(lambda holding: holding.ceiling_bytes)

    def _claims(self, held: Callable[[Holding], int]) -> dict[ContainerKey, dict[GpuUuid, MemoryClaim]]:
        return {
            name: {gpu: MemoryClaim(held(holding), holding.line_bytes) for gpu, holding in own.items()}
            for name, own in self._by_container.items()
        }


def _adopted(line_bytes: int, granted_bytes: int) -> Holding:
    return Holding(line_bytes, granted_bytes=granted_bytes, ceiling_bytes=granted_bytes)
