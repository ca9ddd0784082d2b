"""Everything about the sharing of compute time that is a number, with the reason for its value.

The reasons are measurements on `tests/hook/broker/core/shares/model.py`, which plays hardware, library and programs.
"""

from dataclasses import dataclass
from typing import Final

MS: Final = 1_000_000
S: Final = 1_000_000_000
"""Nanoseconds."""

CREDIT_NS: Final = 25.0 * MS
"""A spent limit's gate opens again when this times (1 - limit) is saved. Long cycles save collectives (10 ms: 0.947
of what they could do); at 40 ms the use of a second strays 3.1 points from the limit."""

SPARE_NS: Final = 30.0 * MS
"""Times (1 - request): bursts so long are not held, else light containers wait behind greedy ones. A greedy container
that comes has this much beyond its request, once."""

IDLE_CLAIM_NS: Final = 100.0 * MS
"""Times the request: how large a claim may grow while its owner pauses. 50 ms cost a late data loader 5 points."""

URGENT_NS: Final = 30.0 * MS
"""A claim past this goes before anything above a request: without it a data loader gets 45.6 of its 50 points."""

DEBT_NS: Final = 500.0 * MS
"""Claims and debts at most: two kernels of 200 ms."""

HOLD_NS: Final = 5.0 * MS
"""A container that wanted the GPU so short ago still counts as wanting it."""

WINDOW_NS: Final = 100.0 * MS
"""A container that has not wanted the GPU for so long is due nothing of it."""

FLOOR: Final = 0.01
"""The least due and the least spare per time, so that a container without a request does not stand for ever."""

PAUSED: Final = 0.05
"""A container that paused for a larger part of a tick saves up no more than its idle claim."""


MOMENT: Final = 0.2
"""A container that wanted the GPU for no larger part of a tick, and wants nothing at its end, holds nobody up. Else a
kernel of 20 µs in each 50 ms costs a neighbour that launches under a lock 9 points of 89: a tick at a shut gate each
time. At 0.3 a container with a request of 90 and short pauses loses 2 points more."""


@dataclass(frozen=True, slots=True)
class ShareSettings:
    """How GPUs are shared between containers.

    Attributes:
        tick_ms: between two readings of all words. At 20 a light container's p99 grows by half; at 2 nothing is
            better, and the broker takes twice the processor.
        quantum_ms: half of it is how far a container may be ahead of its due while another is behind by a quarter.
            Larger for fewer flips of the gates; 10 gives the same shares.
        ahead_ms: work that a metered process may have queued: more than a tick and a slice, or the GPU idles.
        alone_ms: about as much behind an open gate, and so what an arriving neighbour waits for at most.
        slice_ms: the hardware gives each process with work so much by turns. Real slices of 1 to 5 ms change shares
            by less than a point.
        relax_s: after so long as the only one that wanted its GPUs, a container without a limit is not metered.
        unmet_s: a container that wanted throughout so long and got less than its request is announced.
    """

    tick_ms: float = 5.0
    quantum_ms: float = 20.0
    ahead_ms: float = 10.0
    alone_ms: float = 100.0
    slice_ms: float = 2.0
    relax_s: float = 1.0
    unmet_s: float = 10.0
