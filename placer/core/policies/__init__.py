"""Placement policies, one file each, all with one interface. A policy picks the best among the GPUs that fit.

A policy only orders the GPUs that fit. Whether a container fits is decided by `placer.core.room` alone.
"""

from typing import Final, Protocol

from placer.core.policies.binpack import BINPACK
from placer.core.policies.headroom import HEADROOM, LITERAL
from placer.core.room import Room
from plimsoll.contract import ContainerDemand
from plimsoll.part.errors import InputError


class Policy(Protocol):
    """The order among GPUs that fit."""

    @property
    def name(self) -> str:
        """The policy's name in `plimsoll.dev/policy`."""

    def rank(self, room: Room) -> float:
        """The score of this GPU for the container that it suits best: no score here is higher.

        A plan may take from the room, and its score then falls.
        """

    def sub_scores(self, room: Room, demand: ContainerDemand) -> dict[str, float]:
        """The named parts of the score, for people; higher is better."""

    def score(self, room: Room, demand: ContainerDemand) -> float:
        """The score of this GPU for this container; higher is better."""


POLICIES: Final[dict[str, Policy]] = {policy.name: policy for policy in (HEADROOM, LITERAL, BINPACK)}


def policy_named(name: str, field: str) -> Policy:
    """The policy of that name.

    Raises:
        InputError: there is no such policy; `field` is the place of the name in the message.
    """
    if name not in POLICIES:
        raise InputError(
            field, name, "is no placement policy", f"choose one of {', '.join(sorted(POLICIES))}"
        )
    return POLICIES[name]
