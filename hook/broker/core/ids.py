"""Who is who: containers, processes and slots, as every module of the broker names them."""

from dataclasses import dataclass
from typing import Final

from plimsoll.ids import ContainerName, PodUid
from plimsoll.ids import ProcessKey as ProcessKey  # noqa: PLC0414 - re-exported: the broker names it from here

HALF: Final = 1 << 32
"""An owner word is two halves of 32 bits; see `plimsoll.broker.pages.Slot`."""


@dataclass(frozen=True, slots=True, order=True)
class ContainerKey:
    """A container on this node. Pod uids are never used twice, so a key never changes its meaning."""

    pod: PodUid
    container: ContainerName


@dataclass(frozen=True, slots=True)
class Process:
    """A process with the word by which it owns slots; 0 where that is not known."""

    key: ProcessKey
    owner: int


@dataclass(frozen=True, slots=True)
class SlotUse:
    """A claimed slot of `counts`.

    Attributes:
        used_bytes: per GPU, in the order of the container's lines.
        changed_ns: CLOCK_MONOTONIC just before `used_bytes` last changed, by the owner's own account; 0 for never.
    """

    slot: int
    owner: int
    used_bytes: tuple[int, ...]
    denied_count: int
    changed_ns: int = 0


def owner_word(own_pid: int, start_ticks: int) -> int:
    """The word of a process that sees itself as `own_pid`."""
    return own_pid % HALF + start_ticks % HALF * HALF


def full_start_ticks(owner: int, now_ticks: int) -> int:
    """The whole start time of a process of which only its owner word is left.

    Args:
        owner: its word.
        now_ticks: the machine's uptime in clock ticks. Right for any process younger than 2³² ticks (497
            days at 100 a second).
    """
    return now_ticks - (now_ticks - owner // HALF) % HALF
