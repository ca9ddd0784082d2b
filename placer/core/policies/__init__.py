"""Placement policies, one file each, all with one interface: of the GPUs that fit, which is best?

A policy only orders what fits; whether something fits is `placer.core.room`'s alone.
"""

from typing import Final, Protocol

from placer.core.policies.headroom import HEADROOM, LITERAL
from placer.core.room import Room
from plimsoll.contract import ContainerDemand
from plimsoll.part.errors import InputError


class Policy(Protocol):
    """How to choose among GPUs that fit."""

    @property
    def name(self) -> str:
        """What `plimsoll.dev/policy` calls it."""

    def sub_scores(self, room: Room, demand: ContainerDemand) -> dict[str, float]:
        """Named parts of the score, for explaining it; higher is better."""

    def score(self, room: Room, demand: ContainerDemand) -> float:
        """How good this GPU is for this container; higher is better."""


POLICIES: Final[dict[str, Policy]] = {policy.name: policy for policy in (HEADROOM, LITERAL)}


def policy_named(name: str, field: str) -> Policy:
    """The policy of that name.

    Raises:
        InputError: there is none; `field` says where the name stood.
    """
    if name not in POLICIES:
        raise InputError(
            field, name, "is no placement policy", f"choose one of {', '.join(sorted(POLICIES))}"
        )
    return POLICIES[name]
