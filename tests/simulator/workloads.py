"""Small workloads for the simulator's tests, in bytes and seconds that a reader can add up."""

from collections.abc import Callable, Sequence
from typing import cast

from hypothesis import settings
from hypothesis import strategies as st

from hook.broker.core.memory.arbiter import MemoryArbiter
from hook.broker.core.memory.policies import WaitPolicyName, wait_policy
from simulator.core.at_creation import AtCreation, choices
from simulator.core.on_demand import OnDemand
from simulator.core.replay import Container, Giver, WorkloadReplay
from tests.slow import examples

USABLE_BYTES = 10

FIFTY_EXAMPLES = settings(max_examples=examples(50))
"""The bound is high enough for workloads as small as these."""

POLICIES = ("fifo", "best-fit", "recent-use", "random")


def the_oldest(count: int) -> int:  # noqa: ARG001 - a draw
    """A lot that always chooses the container that came first."""
    return 0


def at_creation(policy: str, draw: Callable[[int], int] = the_oldest) -> Giver:
    """ConVGPU's rule on a card of ten bytes."""
    return AtCreation(USABLE_BYTES, choices(draw)[policy])


def on_demand(policy: str, seed: bytes = b"seed") -> Giver:
    """Plimsoll's rule on a card of ten bytes."""
    return OnDemand(USABLE_BYTES, MemoryArbiter(wait_policy(cast("WaitPolicyName", policy), seed)))


GIVERS: dict[str, Callable[[str], Giver]] = {"at-creation": at_creation, "on-demand": on_demand}


def containers(*described: tuple[str, float, int, float]) -> list[Container]:
    """Containers from name, arrival, bytes requested in one piece, and running time."""
    return [Container(name, arrives_s, (asks,), runs_s) for name, arrives_s, asks, runs_s in described]


def started(outcome: WorkloadReplay) -> dict[str, float | None]:
    """The start time of each container."""
    return {stay.container.name: stay.started_s for stay in outcome.stays}


def most_held_bytes(outcome: WorkloadReplay) -> int:
    """The most bytes that all running containers held at any moment. At its end a container holds nothing."""
    ran = [(s.started_s, s.ended_s, s.container.line_bytes) for s in outcome.stays if s.started_s is not None]
    return max(
        (
            sum(size for began, ended, size in ran if began <= now and (ended is None or now < ended))
            for now, _, _ in ran
        ),
        default=0,
    )


def _numbered(drawn: Sequence[tuple[int, tuple[int, ...], int]]) -> list[Container]:
    return [Container(f"c{i}", float(at), asks, float(runs)) for i, (at, asks, runs) in enumerate(drawn)]


workloads = st.lists(
    st.tuples(st.integers(0, 20), st.tuples(st.integers(1, USABLE_BYTES)), st.integers(1, 9)), max_size=12
).map(_numbered)
"""Up to a dozen containers that each fit on the card alone and request all memory in one piece."""

asking_twice = st.lists(
    st.tuples(
        st.integers(0, 20),
        st.tuples(st.integers(1, USABLE_BYTES // 2), st.integers(1, USABLE_BYTES // 2)),
        st.integers(1, 9),
    ),
    max_size=12,
).map(_numbered)
"""Up to a dozen such containers that hold one part while they request another."""
