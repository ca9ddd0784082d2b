"""ConVGPU's own rule: memory is given to a container when it is created, and kept until it ends.

A new container is given what it declares, or whatever is left. When a container ends, what it had is given to
waiting ones, chosen one after the other, each up to its declaration; what is too little for the next is given to it
all the same, and held there while it waits (Figure 3b and 3d). A container runs once it has all it declared, as the
experiment's program asks for everything at once.

`fifo` and `best-fit` always go on. `recent-use` and `random` need not: the next choice may pass over a container that
holds a part, and once everything lies in such parts, all wait for ever. The paper does not speak of that.

Source: Kang, Jun, Kim, Kim, Kim, "ConVGPU", IEEE CLUSTER 2017, §III.D and §III.E.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from simulator.core.replay import Container, Verdict


@dataclass(slots=True)
class Paused:
    """A container that waits, with what it has been given so far."""

    container: Container
    given_bytes: int = 0

    @property
    def missing_bytes(self) -> int:
        """What it still needs before it can run."""
        return self.container.line_bytes - self.given_bytes


Choice = Callable[[Sequence[Paused], int], Paused]
"""Who is next, of those that wait (oldest first), for so many free bytes."""


def fifo(waiting: Sequence[Paused], free_bytes: int) -> Paused:  # noqa: ARG001 - one signature
    """The oldest."""
    return waiting[0]


def best_fit(waiting: Sequence[Paused], free_bytes: int) -> Paused:
    """Who needs most of those whose need is free; if nobody's is, who needs least."""
    fitting = [paused for paused in waiting if paused.missing_bytes <= free_bytes]
    if fitting:
        return max(fitting, key=lambda paused: paused.missing_bytes)
    return min(waiting, key=lambda paused: paused.missing_bytes)


def recent_use(waiting: Sequence[Paused], free_bytes: int) -> Paused:  # noqa: ARG001 - one signature
    """Who was suspended last."""
    return waiting[-1]


def by_chance(draw: Callable[[int], int], waiting: Sequence[Paused], free_bytes: int) -> Paused:  # noqa: ARG001 - likewise
    """Anybody; `draw(n)` gives a number from 0 to n - 1."""
    return waiting[draw(len(waiting))]


def choices(draw: Callable[[int], int]) -> dict[str, Choice]:
    """ConVGPU's four ways to choose, by the name of our policy of the same kind."""
    return {
        "fifo": fifo,
        "best-fit": best_fit,
        "recent-use": recent_use,
        "random": partial(by_chance, draw),
    }


class AtCreation:
    """A `Giver` by this rule."""

    def __init__(self, usable_bytes: int, choose: Choice) -> None:
        self._free_bytes = usable_bytes
        self._choose: Final = choose
        self._waiting: list[Paused] = []
        self._running: dict[str, int] = {}

    def arrive(self, container: Container, now_s: float) -> Verdict:  # noqa: ARG002 - time plays no part
        """Give the newcomer what is left: nothing, if somebody waits already."""
        newcomer = Paused(container)
        self._waiting.append(newcomer)
        return Verdict(self._give(newcomer))

    def end(self, name: str, now_s: float) -> Verdict:  # noqa: ARG002 - likewise
        """Give what it had to those who wait."""
        self._free_bytes += self._running.pop(name)
        started: tuple[str, ...] = ()
        while self._free_bytes and self._waiting:
            started += self._give(self._choose(self._waiting, self._free_bytes))
        return Verdict(started)

    def _give(self, paused: Paused) -> tuple[str, ...]:
        part_bytes = min(self._free_bytes, paused.missing_bytes)
        self._free_bytes -= part_bytes
        paused.given_bytes += part_bytes
        if paused.missing_bytes:
            return ()
        self._waiting.remove(paused)
        self._running[paused.container.name] = paused.given_bytes
        return (paused.container.name,)
