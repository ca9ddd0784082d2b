"""The machines: a fixed table of nodes with GPUs. The judges read the table; the placer knows reports alone."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

GIB: Final = 1 << 30
MIB: Final = 1 << 20

ZONE: Final = "chaos/zone"


@dataclass(frozen=True, slots=True)
class Card:
    """A GPU.

    Attributes:
        node: the name of its node.
        usable_bytes: as reported by the node's monitor; the same at all times.
        ratio: the bytes that may be promised per usable byte.
    """

    uuid: str
    node: str
    index: int
    model: str
    usable_bytes: int
    ratio: float = 1.0

    @property
    def most_bytes(self) -> int:
        """The most bytes that may be promised on it, to all containers together."""
        return int(self.usable_bytes * self.ratio)


@dataclass(frozen=True, slots=True)
class Machine:
    """A node and its GPUs."""

    name: str
    cards: tuple[Card, ...]
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def advertised(self) -> dict[str, int]:
        """The amounts of our resources on its Node object; none for a single GPU, as monitors may advertise late."""
        if len(self.cards) == 1:
            return {}
        return {
            "plimsoll.dev/gpu": 30 * len(self.cards),
            "plimsoll.dev/gpu-share": 100 * len(self.cards),
            "plimsoll.dev/gpu-memory": sum(card.most_bytes for card in self.cards),
        }


def _machine(number: int, cards: int, model: str, usable_bytes: int, ratio: float = 1.0) -> Machine:
    name = f"node-{number:02d}.chaos"
    made = tuple(
        Card(f"GPU-{number:02d}-{index}", name, index, model, usable_bytes, ratio) for index in range(cards)
    )
    return Machine(name, made, {ZONE: "east" if number % 2 else "west"})


FLEET: Final[tuple[Machine, ...]] = (
    *(_machine(number, 2, "NVIDIA L4", 23 * GIB) for number in range(4)),
    *(_machine(number, 4, "NVIDIA L40S", 45 * GIB) for number in range(4, 8)),
    *(_machine(number, 1, "NVIDIA H100", 79 * GIB) for number in range(8, 11)),
    _machine(11, 2, "NVIDIA L4", 23 * GIB, ratio=1.5),
)
"""Twelve nodes, 29 GPUs, one node that overcommits: few enough GPUs that most of them are full most of the time."""

CARDS: Final[Mapping[str, Card]] = {card.uuid: card for machine in FLEET for card in machine.cards}
MACHINES: Final[Mapping[str, Machine]] = {machine.name: machine for machine in FLEET}
