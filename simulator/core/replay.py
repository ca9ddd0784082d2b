"""A GPU and the containers that arrive: each asks for memory, waits, runs for its time, and ends.

What always holds: a container runs only once its giver has given it all the memory that it asks for. It holds that
memory until its end, and only its end gives memory back.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Protocol

from simulator.core.agenda import Agenda


@dataclass(frozen=True, slots=True)
class Container:
    """A container of a workload.

    Attributes:
        arrives_s: when it first asks for memory, in seconds.
        asks_bytes: its allocations in their order. It asks for each allocation as soon as it has the one before.
        runs_s: seconds that it runs once it has all its allocations.
    """

    name: str
    arrives_s: float
    asks_bytes: tuple[int, ...]
    runs_s: float

    @property
    def line_bytes(self) -> int:
        """The declared memory: the sum of its allocations."""
        return sum(self.asks_bytes)


@dataclass(frozen=True, slots=True)
class Effects:
    """The result of an event: the containers that start to run, and those that are refused for good."""

    started: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


class Giver(Protocol):
    """A rule that decides when each container gets its memory."""

    def arrive(self, container: Container, now_s: float) -> Effects:
        """A container arrives and asks for memory."""

    def end(self, name: str, now_s: float) -> Effects:
        """A running container ends and gives all its memory back."""


@dataclass(slots=True)
class Stay:
    """The course of a container. A time is None if its event never happened."""

    container: Container
    started_s: float | None = None
    ended_s: float | None = None
    refused: bool = False

    @property
    def suspended_s(self) -> float | None:
        """Seconds from its arrival until it had all its memory."""
        return None if self.started_s is None else self.started_s - self.container.arrives_s


@dataclass(frozen=True, slots=True)
class WorkloadReplay:
    """The course of a workload, in the order of its containers."""

    stays: tuple[Stay, ...]

    @property
    def stuck(self) -> tuple[str, ...]:
        """The containers that still wait though no event is left: a deadlock."""
        return tuple(stay.container.name for stay in self.stays if stay.ended_s is None and not stay.refused)

    @property
    def refused(self) -> tuple[str, ...]:
        """The containers whose wait was refused."""
        return tuple(stay.container.name for stay in self.stays if stay.refused)

    @property
    def finished_s(self) -> float:
        """When the last container ended, in seconds after time 0."""
        return max((stay.ended_s for stay in self.stays if stay.ended_s is not None), default=0.0)

    @property
    def suspended_s(self) -> float:
        """The mean suspension in seconds, over the containers that ran."""
        waits = [wait for stay in self.stays if (wait := stay.suspended_s) is not None]
        return sum(waits) / len(waits) if waits else 0.0


class _What(Enum):
    # At the same time, ends come before arrivals: memory is given back before it is asked for.
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
            effects = self.giver.arrive(stay.container, now_s)
        else:
            stay.ended_s = now_s
            effects = self.giver.end(name, now_s)
        for started in effects.started:
            self._start(self.stays[started], now_s)
        for refused in effects.refused:
            self.stays[refused].refused = True

    def _start(self, stay: Stay, now_s: float) -> None:
        assert stay.started_s is None, f"{stay.container.name} was started twice"
        stay.started_s = now_s
        self.plan(now_s + stay.container.runs_s, _What.ENDS, stay.container.name)


def replay(containers: Iterable[Container], giver: Giver) -> WorkloadReplay:
    """Run a workload to its end, or until no event is left.

    Args:
        containers: the containers in any order; their names must differ.
        giver: a fresh one, because a giver remembers the memory that it gave.
    """
    given: Final[Sequence[Container]] = tuple(containers)
    run = _Run(giver, {container.name: Stay(container) for container in given})
    assert len(run.stays) == len(given), "two containers have the same name"
    for container in given:
        run.plan(container.arrives_s, _What.ARRIVES, container.name)
    while (next_event := run.agenda.next()) is not None:
        now_s, (what, name) = next_event
        run.happen(now_s, what, name)
    return WorkloadReplay(tuple(run.stays.values()))
