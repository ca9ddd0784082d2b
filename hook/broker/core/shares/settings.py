"""The numbers of compute-time sharing, each with the reason for its value.

The reasons are measurements on `tests/hook/broker/core/shares/model.py`, which plays hardware, library and programs.
"""

from dataclasses import dataclass
from typing import Final

MS: Final = 1_000_000
S: Final = 1_000_000_000
"""Nanoseconds."""

CREDIT_NS: Final = 25.0 * MS
"""The largest credit is this times (1 - limit). With less, a program that the host delays loses what it could not
use: with 8 ms, 5 points of 60 on a busy machine."""

BURST_NS: Final = 11.0 * MS
"""The largest credit of a container with one GPU, whatever its limit. In a second that begins with all credit, the
container uses this and a kernel more than its limit, less what it saved before its gate opened. With kernels of 20 ms
and a limit of 30 that is 25 ms, and 32 ms without this bound."""

SAVED_NS: Final = 8.0 * MS
SAVED_BY_SEVERAL_NS: Final = CREDIT_NS
"""A gate that shut for a spent limit opens again when the credit has grown to this times (1 - limit). The second is
for containers with several GPUs.

Below `ahead_ms`, only one long kernel passes at each opening. With 25 ms, two kernels of 20 ms pass under a limit of
30, and the use of the first second strays up to 4.4 points from the limit. But long cycles favour collectives: with
8 ms they reach 0.93 of their possible rate, with 25 ms 0.96. All other programs reach the same with both."""

SPARE_NS: Final = 30.0 * MS
"""Bursts up to this times (1 - request) are not held. With a smaller value, light containers wait behind greedy ones.
A greedy container that starts gets this much beyond its request, once."""

OWED_NS: Final = 10.0 * MS
REPAY: Final = 0.9
"""The spare of a container that is ahead of its due by `OWED_NS` grows by `REPAY` times its request. So what a greedy
container got beyond its request when it started is paid back but for that. Without it, containers of 20, 30 and 50
that start together and are greedy stay 25, 25 and 55 ms apart from their dues. With 1 ms in place of 10, the
neighbours of a collective lose 2 points of 34."""

IDLE_CLAIM_NS: Final = 100.0 * MS
"""This times the request bounds the claim of a container that pauses. With 50 ms a late data loader loses 5
points."""

LARGE: Final = 0.5
"""From this request on, a container that pauses may claim twice as much. Otherwise a data loader with request 50 has
47.3 beside kernels of 20 ms, as several late steps in a row are forgiven. If smaller requests claimed as much, light
clients would hold each other up: of three with request 30, the p99 latency would be nine times as long."""

URGENT_NS: Final = 30.0 * MS
"""A claim larger than the own by this comes before any use above a request. Without it a data loader gets 45.6 of its
50 points."""

DEBT_NS: Final = 500.0 * MS
"""The bound of claims and debts: two kernels of 200 ms."""

WINDOW_NS: Final = 100.0 * MS
"""A container that has not wanted the GPU for this time is due nothing of it."""

FLOOR: Final = 0.01
"""The least due, and the least growth of the spare per time. So a container without a request is not held for
ever."""

PAUSED: Final = 0.05
"""The claim of a container that paused for a larger part of a tick is bounded by `IDLE_CLAIM_NS`, and counts only
while it is worth the idle time that it costs."""

PRICE: Final = 16.0
"""A claim is worth this many times the compute time that it buys, in idle time. Programs that wait for each kernel
gain from 0.6 of that time (kernels of 5 ms, pauses of 4) down to 0.1 (1 ms, pauses of 2.3). With 8, the latter lose
half of their gain. With more, the noise in the use of a server whose requests come at random counts as gain more
often."""

TRIALS: Final = 0.22
"""A claim that buys nothing may cost this times the cube of the request, as a part of the time: 2 % for a request of
45, 16 % for 90. With twice as much, a greedy container beside a periodic server of request 45 gets 0.94 of what that
leaves. If it grew with the request alone, a program of request 90 that waits for each kernel would lose 7 % in its
first ten seconds, because its claim counts again too late."""

TRY_NS: Final = 60.0 * MS
"""The worth with which a claim begins to count. A trial lasts as long as the GPU idles for this time: some 200 ms,
many times as long as a request, since the work that waited before shows as gain once."""

WORTH_NS: Final = 1000.0 * MS
"""The largest worth. A program gains only in some ticks: with 300 ms, kernels of 20 ms with pauses of 18 lose most of
their gain."""

USUAL_NS: Final = 40.0 * S
"""The time for which the usual charges of a container are remembered. While its claim counts they are learned as
slowly, so that a program which changes is tried anew after about this time."""

MOMENT: Final = 0.2
"""A container that wanted the GPU for at most this part of a tick, and wants nothing at the tick's end, holds up no
other. Without this, a kernel of 20 µs in each 50 ms costs a neighbour that launches under a lock 9 points of 89: the
neighbour is held at its gate for a tick each time. With 0.3 a container with a request of 90 and short pauses loses 2
points more."""


@dataclass(frozen=True, slots=True)
class ShareSettings:
    """How GPUs are shared between containers.

    Attributes:
        tick_ms: time between two readings of all words. With 20 a light container's p99 latency grows by half. With
            2 nothing is better, and the broker takes twice the processor time.
        quantum_ms: a container may be ahead of its due by half of this while another is behind by a quarter. Larger
            values flip the gates less often; 10 gives the same shares.
        ahead_ms: work that a metered process may have queued. Below a tick and a slice together, the GPU idles.
        alone_ms: about the work queued behind an open gate, and so the longest wait of an arriving neighbour.
        slice_ms: the hardware's time slice per process. Real slices of 1 to 5 ms change shares by less than a point.
        relax_s: a container without a limit is not metered once no other has wanted its GPUs for this long.
        unmet_s: a container that wanted its GPUs for this whole time, and got less than its request, is announced.
    """

    tick_ms: float = 5.0
    quantum_ms: float = 20.0
    ahead_ms: float = 10.0
    alone_ms: float = 100.0
    slice_ms: float = 2.0
    relax_s: float = 1.0
    unmet_s: float = 10.0
