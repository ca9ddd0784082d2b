"""The experiment's containers: Table III's types, drawn at random, one every five seconds.

The paper leaves three points open:

* The duration of each type. The paper says "varies by the size, from 5 seconds to 45 seconds". `BY_TYPE` climbs
  evenly, 8 s a type. `BY_MEMORY` climbs with the bytes, so that only the largest type runs long. The default is
  `BY_TYPE`, because its finished times are nearer to the paper's over all counts. So their level is fitted and
  proves nothing; their growth with the count, and the differences between policies, can be compared.
* The card's memory. A K20m is "5GB"; its error correction (ECC, on as delivered) takes a sixteenth: 4800 MiB.
* Whether the process's own 66 MiB (§III.D) are part of a type's memory. Here they are.
"""

import random
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from plimsoll.quantity import MIB
from simulator.core.replay import Container

INTERVAL_S: Final = 5.0
USABLE_BYTES: Final = 4800 * MIB

MEMORY_MIB: Final[Mapping[str, int]] = MappingProxyType(
    {"nano": 128, "micro": 256, "small": 512, "medium": 1024, "large": 2048, "xlarge": 4096}
)
"""Table III: GPU memory by type."""

SHORTEST_S: Final = 5.0
LONGEST_S: Final = 45.0

BY_TYPE: Final[Mapping[str, float]] = MappingProxyType(
    {
        name: SHORTEST_S + (LONGEST_S - SHORTEST_S) * index / (len(MEMORY_MIB) - 1)
        for index, name in enumerate(MEMORY_MIB)
    }
)
"""Seconds by type: 5, 13, 21, 29, 37, 45."""

BY_MEMORY: Final[Mapping[str, float]] = MappingProxyType(
    {
        name: SHORTEST_S + (LONGEST_S - SHORTEST_S) * (mib - 128) / (4096 - 128)
        for name, mib in MEMORY_MIB.items()
    }
)
"""Seconds by type: 5, 6.3, 8.9, 14, 24.4, 45."""

DURATIONS: Final = MappingProxyType({"by-type": BY_TYPE, "by-memory": BY_MEMORY})


def draw(
    count: int, seed: int, durations: Mapping[str, float] = BY_TYPE, context_bytes: int = 0
) -> tuple[Container, ...]:
    """Draw `count` containers, each type with equal chance; always the same for the same count and seed.

    Args:
        count: the number of containers, 1 or more.
        seed: the number of the draw.
        durations: seconds by type.
        context_bytes: the part of a type's memory that is asked for first and separately; 0 for a single request.
    """
    chance = random.Random(f"{count}/{seed}")
    types = list(MEMORY_MIB)
    return tuple(container(index, chance.choice(types), durations, context_bytes) for index in range(count))


def container(index: int, kind: str, durations: Mapping[str, float], context_bytes: int) -> Container:
    """The container of this type that arrives as number `index`, counted from 0."""
    line_bytes = MEMORY_MIB[kind] * MIB
    asks_bytes = (context_bytes, line_bytes - context_bytes) if context_bytes else (line_bytes,)
    return Container(f"{index:02}-{kind}", index * INTERVAL_S, asks_bytes, durations[kind])
