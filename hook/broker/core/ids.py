"""The identities of containers, processes and slots in the broker."""

from dataclasses import dataclass
from typing import Final

from msgspec import Struct

from plimsoll.ids import ContainerName, PodUid, ProcessKey

HALF: Final = 1 << 32
"""An owner word is two halves of 32 bits; see `plimsoll.broker.pages.Slot`."""


class ContainerKey(Struct, frozen=True, order=True, cache_hash=True):
    """A container on this node. No pod uid is used twice, so a key never changes its meaning."""

    pod: PodUid
    container: ContainerName


@dataclass(frozen=True, slots=True)
class Process:
    """A process with its owner word, by which it owns slots; 0 where the word is not known."""

    key: ProcessKey
    owner: int


@dataclass(frozen=True, slots=True)
class SlotUse:
    """A claimed slot of `counts`.

    Attributes:
        used_bytes: per GPU, in the order of the container's lines.
        changed_ns: the machine's clock just before `used_bytes` last changed, as the owner wrote it; 0 for never.
        awaiting: bit n: the owner holds still until it was measured on the line's n-th GPU.
        in_vain: bit n: the owner has gone on without that measurement.
    """

    slot: int
    owner: int
    used_bytes: tuple[int, ...]
    denied_count: int
    changed_ns: int = 0
    awaiting: int = 0
    in_vain: int = 0


@dataclass(frozen=True, slots=True)
class SlotMeasured:
    """NVML's figures of the process in a slot, per GPU in the order of the container's lines.

    Attributes:
        owner: its owner word; 0 once it is dead.
        measured_ns: the machine's clock when its latest measurement began that counts; 0 for none.
        excess_bytes: the bytes that it holds past its words.
    """

    slot: int
    owner: int = 0
    measured_ns: tuple[int, ...] = ()
    excess_bytes: tuple[int, ...] = ()


def owner_word(own_pid: int, start_ticks: int) -> int:
    """The owner word of a process; `own_pid` is its pid inside its own pid namespace."""
    return own_pid % HALF + start_ticks % HALF * HALF


def full_start_ticks(owner: int, now_ticks: int) -> int:
    """The whole start time of a process whose owner word alone is known.

    Args:
        owner: the word.
        now_ticks: the machine's uptime in clock ticks. The result is right for any process younger than 2³² ticks
            (497 days at 100 a second).
    """
    return now_ticks - (now_ticks - owner // HALF) % HALF
