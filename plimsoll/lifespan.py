"""When the containers of a pod run, and the most that they have together at any time of the pod's life.

A pod's init containers begin one after the other. An ordinary one ends before the next begins. A sidecar (an init
container with `restartPolicy: Always`) runs on, beside the later init containers and the containers. The containers
begin last, all at once. So the pod's promise on a GPU, in bytes as in share and in sharers, is

    max(over init containers: the init container + the sidecars that began before it; containers + all sidecars)

as Kubernetes computes the requests of a pod (`k8s.io/component-helpers/resource`). What always holds: placer and
broker add up the promises to a pod by `peak` and `beside` alone.
"""

import sys
from collections.abc import Iterable, Mapping
from typing import Annotated, Final

from msgspec import Meta, Struct

from plimsoll.ids import ContainerName

RUNNING: Final = sys.maxsize
"""The time from which on the containers run; a time before it is the place of the init container that runs then."""


class Lifespan(Struct, frozen=True, omit_defaults=True):
    """The part of its pod's life in which a container runs.

    Attributes:
        init: the place among the pod's init containers that ask for a GPU, from 0; None for an ordinary container.
        sidecar: the init container runs on beside everything that begins later.
    """

    init: Annotated[int, Meta(ge=0)] | None = None
    sidecar: bool = False

    @property
    def first(self) -> int:
        """The first time at which the container runs."""
        return RUNNING if self.init is None else self.init

    @property
    def last(self) -> int:
        """The last time at which the container runs."""
        return self.first if not self.sidecar else RUNNING

    @property
    def ends(self) -> bool:
        """Whether the container ends before the pod's containers begin."""
        return self.last < RUNNING

    def runs_at(self, time: int) -> bool:
        """Whether the container runs at this time."""
        return self.first <= time <= self.last

    def meets(self, other: "Lifespan") -> bool:
        """Whether containers with these lifespans run at the same time."""
        return self.first <= other.last and other.first <= self.last


MAIN: Final = Lifespan()
"""The lifespan of an ordinary container."""


class StartOrder(Struct, frozen=True, omit_defaults=True):
    """The order in which the init containers of a pod begin that have a GPU.

    Attributes:
        init: their names, the first to begin first.
        sidecars: those of them that run on.
    """

    init: tuple[ContainerName, ...] = ()
    sidecars: tuple[ContainerName, ...] = ()

    def lifespan(self, container: ContainerName) -> Lifespan:
        """The lifespan of one of the pod's containers."""
        if container not in self.init:
            return MAIN
        return Lifespan(self.init.index(container), container in self.sidecars)


NO_ORDER: Final = StartOrder()
"""The order of a pod without init containers that have a GPU. A decision leaves out this object, and no equal one."""


def start_order(lifespans: Mapping[ContainerName, Lifespan]) -> StartOrder:
    """The order that gives a pod's containers these lifespans."""
    places = {name: lifespan for name, lifespan in lifespans.items() if lifespan.init is not None}
    if not places:
        return NO_ORDER
    init = tuple(sorted(places, key=lambda name: _turn(places[name])))
    return StartOrder(init, tuple(name for name in init if places[name].sidecar))


def peak(amounts: Iterable[tuple[Lifespan, int]]) -> int:
    """The most that the containers of one pod have together at any time.

    Args:
        amounts: the lifespan of each container, and the amount that it has while it runs.
    """
    ended = sidecars = containers = 0
    for lifespan, amount in sorted(amounts, key=lambda one: _turn(one[0])):
        if lifespan.init is None:
            containers += amount
        elif lifespan.sidecar:
            sidecars += amount
        else:
            ended = max(ended, sidecars + amount)
    return max(ended, sidecars + containers)


def beside(lifespan: Lifespan, amounts: Iterable[tuple[Lifespan, int]]) -> int:
    """The most that other containers of a pod have together at any time at which one with this lifespan runs.

    Args:
        lifespan: that of the one container.
        amounts: the lifespans and amounts of the others.
    """
    # The containers that meet a sidecar are all there once the last of them runs, or end before. So the time of
    # their peak is a time of the sidecar too. All that meet an ordinary container meet each other.
    return peak(one for one in amounts if one[0].meets(lifespan))


def longer(one: Lifespan, other: Lifespan) -> Lifespan:
    """A lifespan under which a container counts at least as much as under both, in any pod."""
    if one.sidecar or other.sidecar:
        return Lifespan(min(known.first for known in (one, other) if known.sidecar), sidecar=True)
    if one.init is None or other.init is None:
        return MAIN
    return Lifespan(max(one.init, other.init))


def _turn(lifespan: Lifespan) -> tuple[int, bool]:
    """The place in the order of beginnings; where two places are one, a sidecar comes first, as the larger sum."""
    return lifespan.first, not lifespan.sidecar
