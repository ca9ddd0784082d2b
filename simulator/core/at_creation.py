"""ConVGPU's own rule: memory is given to a container when it is created, and kept until it ends.

A new container gets the memory that it declares, or all that is left. When a container ends, its memory goes to
waiting containers, chosen one after the other, each up to its declaration. The last bytes go to the next container
even if they are too few for it, and it holds them while it waits (Figure 3b and 3d). A container runs once it has
all that it declared, because the experiment's program asks for everything at once.

`fifo` and `best-fit` never deadlock. `recent-use` and `random` may: the next choice may pass over a container that
holds a part. Once all memory lies in such parts, all containers wait for ever. The paper does not mention that.

Source: Kang, Jun, Kim, Kim, Kim, "ConVGPU", IEEE CLUSTER 2017, §III.D and §III.E.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from simulator.core.replay import Container, Effects


@dataclass(slots=True)
class Suspended:
    """A waiting container, with the bytes that it has so far."""

    container: Container
    given_bytes: int = 0

    @property
    def missing_bytes(self) -> int:
        """The bytes that the container still needs before it can run."""
        return self.container.line_bytes - self.given_bytes


Choice = Callable[[Sequence[Suspended], int], Suspended]
"""Chooses the next of the waiting containers (oldest first) for this many free bytes."""


def fifo(waiting: Sequence[Suspended], free_bytes: int) -> Suspended:  # noqa: ARG001 - one signature
    """Choose the oldest."""
    return waiting[0]


def best_fit(waiting: Sequence[Suspended], free_bytes: int) -> Suspended:
    """Choose the largest need that the free bytes cover. If they cover none, choose the least need."""
    fitting = [suspended for suspended in waiting if suspended.missing_bytes <= free_bytes]
    if fitting:
        return max(fitting, key=lambda suspended: suspended.missing_bytes)
    return min(waiting, key=lambda suspended: suspended.missing_bytes)


def recent_use(waiting: Sequence[Suspended], free_bytes: int) -> Suspended:  # noqa: ARG001 - one signature
    """Choose the container that was suspended last."""
    return waiting[-1]


def by_chance(draw: Callable[[int], int], waiting: Sequence[Suspended], free_bytes: int) -> Suspended:  # noqa: ARG001 - likewise
    """Choose at random; `draw(n)` gives a number from 0 to n - 1."""
    return waiting[draw(len(waiting))]


def choices(draw: Callable[[int], int]) -> dict[str, Choice]:
    """ConVGPU's four policies, by the name of our policy of the same kind."""
    return {
        "fifo": fifo,
        "best-fit": best_fit,
        "recent-use": recent_use,
        "random": partial(by_chance, draw),
    }


class AtCreation:
    """A `Giver` that follows this rule."""

    def __init__(self, usable_bytes: int, choose: Choice) -> None:
        self._free_bytes = usable_bytes
        self._choose: Final = choose
        self._waiting: list[Suspended] = []
        self._running: dict[str, int] = {}

    def arrive(self, container: Container, now_s: float) -> Effects:  # noqa: ARG002 - the rule ignores time
        """Give the free memory to the new container; none is free if another waits already."""
        newcomer = Suspended(container)
        self._waiting.append(newcomer)
        return Effects(self._give(newcomer))

    def end(self, name: str, now_s: float) -> Effects:  # noqa: ARG002 - likewise
        """Give the container's memory to waiting ones."""
        self._free_bytes += self._running.pop(name)
        started: tuple[str, ...] = ()
        while self._free_bytes and self._waiting:
            started += self._give(self._choose(self._waiting, self._free_bytes))
        return Effects(started)

    def _give(self, suspended: Suspended) -> tuple[str, ...]:
        part_bytes = min(self._free_bytes, suspended.missing_bytes)
        self._free_bytes -= part_bytes
        suspended.given_bytes += part_bytes
        if suspended.missing_bytes:
            return ()
        self._waiting.remove(suspended)
        self._running[suspended.container.name] = suspended.given_bytes
        return (suspended.container.name,)
