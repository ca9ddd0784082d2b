"""Dijkstra's banker: may a container be given more memory so that all can still reach what they declared?

E. W. Dijkstra, "Cooperating Sequential Processes" (EWD123, 1965), section 6: a state is *safe* if the containers can
end one after the other, each with what is free when its turn comes, up to the whole of its claim. As long as every
grant leads from a safe state to a safe one, containers never wait for each other in a circle. Each GPU is a resource
of its own; a container on several claims all of them.

A claim is the container's line, clipped to what the GPU can hold at all. A state may become unsafe without a grant:
the node lost memory to other processes, or a line was raised. Then every container that can still end must stay able
to end.

The algorithm assumes that containers end or give memory back. It assumes nothing about the time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hook.broker.core.ids import ContainerKey
from plimsoll.ids import GpuUuid


@dataclass(frozen=True, slots=True)
class MemoryClaim:
    """The bytes that a container holds of a GPU, and the most that it may come to hold."""

    held_bytes: int
    most_bytes: int


class AllocationState:
    """The memory of a node's GPUs as it is divided among containers: a copy, on which grants are tried."""

    def __init__(
        self,
        usable_bytes: Mapping[GpuUuid, int],
        claims: Mapping[ContainerKey, Mapping[GpuUuid, MemoryClaim]],
    ) -> None:
        """Take the division as it is, safe or not.

        Args:
            usable_bytes: bytes that all containers may hold together, per GPU; a missing GPU counts as 0.
            claims: by container, for each of its GPUs.
        """
        self._usable = usable_bytes
        self._held = {name: {gpu: c.held_bytes for gpu, c in own.items()} for name, own in claims.items()}
        self._most = {
            name: {
                gpu: max(c.held_bytes, min(c.most_bytes, usable_bytes.get(gpu, 0))) for gpu, c in own.items()
            }
            for name, own in claims.items()
        }
        self._free = dict(usable_bytes)
        for own in self._held.values():
            for gpu, held in own.items():
                self._free[gpu] = self._free.get(gpu, 0) - held
        self._enders = self._can_end()

    def free_bytes(self, gpu: GpuUuid) -> int:
        """Bytes that no container holds; below 0 where the node lost memory to other processes."""
        return self._free.get(gpu, 0)

    def holds(self, container: ContainerKey) -> bool:
        """Whether a container holds anything on any GPU."""
        return any(self._held[container].values())

    def held_bytes(self, container: ContainerKey, gpu: GpuUuid) -> int:
        """The bytes that a container holds of a GPU."""
        return self._held[container][gpu]

    def may_reach(self, container: ContainerKey, gpu: GpuUuid, target_bytes: int) -> bool:
        """Whether a container may hold `target_bytes`.

        The bytes must be free, and every container that could end before must be able to end afterwards. A container
        that holds nothing yet must itself be able to end afterwards: nothing is lost if it waits.
        """
        more_bytes = target_bytes - self._held[container][gpu]
        if more_bytes <= 0:
            return True
        if more_bytes > self.free_bytes(gpu):
            return False
        must_end = self._enders if self.holds(container) else self._enders | {container}
        self._move(container, gpu, more_bytes)
        is_allowed = must_end <= self._can_end()
        self._move(container, gpu, -more_bytes)
        return is_allowed

    def reach(self, container: ContainerKey, gpu: GpuUuid, target_bytes: int) -> None:
        """Let a container hold `target_bytes`, unless it holds more already."""
        self._move(container, gpu, max(0, target_bytes - self._held[container][gpu]))
        self._enders = self._can_end()

    def in_circle(
        self, requests: Mapping[ContainerKey, Sequence[tuple[GpuUuid, int]]]
    ) -> frozenset[ContainerKey]:
        """The containers that hold memory and wait for each other in a circle.

        None of them could go on, even if every container that does not wait ended.

        Args:
            requests: per waiting container, the GPU and bytes of each of its requests, beyond what it holds.
        """
        free = dict(self._usable)
        for name in requests:
            _add(free, self._held[name], -1)
        left = dict(requests)
        while lucky := [name for name, own in left.items() if self._can_go_on(own, free)]:
            for name in lucky:
                del left[name]
                _add(free, self._held[name], 1)
        return frozenset(name for name in left if self.holds(name))

    def _can_go_on(self, requests: Sequence[tuple[GpuUuid, int]], free: Mapping[GpuUuid, int]) -> bool:
        """Whether free memory meets a request; a GPU that was never measured is no reason to refuse one."""
        return any(gpu not in self._usable or more <= free[gpu] for gpu, more in requests)

    def _move(self, container: ContainerKey, gpu: GpuUuid, more_bytes: int) -> None:
        self._held[container][gpu] += more_bytes
        self._free[gpu] = self._free.get(gpu, 0) - more_bytes

    def _can_end(self) -> frozenset[ContainerKey]:
        """The holders that can end one after the other. A container that holds nothing hinders no other's end."""
        free = dict(self._free)
        left = [name for name in self._held if self.holds(name)]
        ended: set[ContainerKey] = set()
        while lucky := [name for name in left if self._fits(name, free)]:
            for name in lucky:
                _add(free, self._held[name], 1)
            ended.update(lucky)
            left = [name for name in left if name not in ended]
        return frozenset(ended)

    def _fits(self, name: ContainerKey, free: Mapping[GpuUuid, int]) -> bool:
        held = self._held[name]
        return all(most - held[gpu] <= max(0, free[gpu]) for gpu, most in self._most[name].items())


def _add(free: dict[GpuUuid, int], held: Mapping[GpuUuid, int], sign: int) -> None:
    for gpu, held_bytes in held.items():
        free[gpu] = free.get(gpu, 0) + sign * held_bytes
