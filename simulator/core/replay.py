"""One GPU and the containers that come to it: each asks for its memory, waits, runs its time, ends.

What always holds: a container runs only from the moment its giver has given it everything that it asks for, and
holds that until it ends; its end is the only thing that gives memory back.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Protocol

from simulator.core.agenda import Agenda


@dataclass(frozen=True, slots=True)
class Container:
    """One container of a workload.

    Attributes:
        arrives_s: when it asks for memory, in seconds.
        asks_bytes: what it asks for, one after the other and at once: the next as soon as it has the last.
        runs_s: how long it runs once it has all of it.
    """

    name: str
    arrives_s: float
    asks_bytes: tuple[int, ...]
    runs_s: float

    @property
    def line_bytes(self) -> int:
        """What it declares: all that it will ask for."""
        return sum(self.asks_bytes)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Which waiting containers an event lets run, and which it refuses for good."""

    started: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


class Giver(Protocol):
    """Who decides whose memory is given when."""

    def arrive(self, container: Container, now_s: float) -> Verdict:
        """A container comes and asks."""

    def end(self, name: str, now_s: float) -> Verdict:
        """A running container ends and gives everything back."""


@dataclass(slots=True)
class Stay:
    """What became of one container; times are None for what never happened."""

    container: Container
    started_s: float | None = None
    ended_s: float | None = None
    refused: bool = False

    @property
    def suspended_s(self) -> float | None:
        """From its arrival until it had all its memory."""
        return None if self.started_s is None else self.started_s - self.container.arrives_s


@dataclass(frozen=True, slots=True)
class Replay:
    """How a workload went, in the order of its containers."""

    stays: tuple[Stay, ...]

    @property
    def stuck(self) -> tuple[str, ...]:
        """Who still waits though nothing is left to happen: a deadlock."""
        return tuple(stay.container.name for stay in self.stays if stay.ended_s is None and not stay.refused)

    @property
    def refused(self) -> tuple[str, ...]:
        """Whose wait was refused."""
        return tuple(stay.container.name for stay in self.stays if stay.refused)

    @property
    def finished_s(self) -> float:
        """When the last container ended, in seconds after time 0."""
        return max((stay.ended_s for stay in self.stays if stay.ended_s is not None), default=0.0)

    @property
    def suspended_s(self) -> float:
        """The mean over the containers that ran."""
        waits = [wait for stay in self.stays if (wait := stay.suspended_s) is not None]
        return sum(waits) / len(waits) if waits else 0.0


class _What(Enum):
    # At the same time, whoever ends gives back before whoever arrives asks.
    ENDS = 0
    ARRIVES = 1


@dataclass(slots=True)
class _Run:
    giver: Giver
    stays: dict[str, Stay]
    agenda: Agenda[tuple[_What, str]] = field(default_factory=Agenda)

    def plan(self, time_s: float, what: _What, name: str) -> None:
        self.agenda.add(time_s, what.value, (what, name))

    def happen(self, now_s: float, what: _What, name: str) -> None:
        stay = self.stays[name]
        if what is _What.ARRIVES:
            verdict = self.giver.arrive(stay.container, now_s)
        else:
            stay.ended_s = now_s
            verdict = self.giver.end(name, now_s)
        for started in verdict.started:
            self._start(self.stays[started], now_s)
        for refused in verdict.refused:
            self.stays[refused].refused = True

    def _start(self, stay: Stay, now_s: float) -> None:
        assert stay.started_s is None, f"{stay.container.name} was started twice"
        stay.started_s = now_s
        self.plan(now_s + stay.container.runs_s, _What.ENDS, stay.container.name)


def replay(containers: Iterable[Container], giver: Giver) -> Replay:
    """Let a workload run to its end, or until nothing can happen any more.

    Args:
        containers: in any order; names must differ.
        giver: fresh, as it keeps what it gave.
    """
    given: Final[Sequence[Container]] = tuple(containers)
    run = _Run(giver, {container.name: Stay(container) for container in given})
    assert len(run.stays) == len(given), "two containers have the same name"
    for container in given:
        run.plan(container.arrives_s, _What.ARRIVES, container.name)
    while (next_event := run.agenda.next()) is not None:
        now_s, (what, name) = next_event
        run.happen(now_s, what, name)
    return Replay(tuple(run.stays.values()))
