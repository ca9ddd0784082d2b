"""Small workloads for the simulator's tests, in bytes and seconds that can be added up by hand."""

from collections.abc import Callable, Sequence
from functools import partial

from hypothesis import strategies as st

from simulator.core.at_creation import AtCreation, choices
from simulator.core.replay import Container, Giver, Replay, replay

USABLE_BYTES = 10

POLICIES = ("fifo", "best-fit", "recent-use", "random")

GiverFor = Callable[[str], Giver]


def the_oldest(count: int) -> int:  # noqa: ARG001 - a draw
    """A lot that always falls on the one who came first."""
    return 0


def at_creation(policy: str, draw: Callable[[int], int] = the_oldest) -> Giver:
    """ConVGPU's rule on a card of ten bytes."""
    return AtCreation(USABLE_BYTES, choices(draw)[policy])


def containers(*described: tuple[str, float, int, float]) -> list[Container]:
    """From name, arrival, bytes and running time."""
    return [Container(name, arrives_s, (asks,), runs_s) for name, arrives_s, asks, runs_s in described]


def started(outcome: Replay) -> dict[str, float | None]:
    """When each began to run."""
    return {stay.container.name: stay.started_s for stay in outcome.stays}


def most_held_bytes(outcome: Replay) -> int:
    """The most that all running containers held at any moment; whoever ends holds nothing from that moment."""
    ran = [(s.started_s, s.ended_s, s.container.line_bytes) for s in outcome.stays if s.started_s is not None]
    moments = [began for began, _, _ in ran]
    return max(
        (
            sum(size for began, ended, size in ran if began <= now and (ended is None or now < ended))
            for now in moments
        ),
        default=0,
    )


workloads = st.lists(
    st.tuples(st.integers(0, 20), st.integers(1, USABLE_BYTES), st.integers(1, 9)), max_size=12
).map(
    lambda drawn: containers(
        *((f"c{i}", float(at), size, float(runs)) for i, (at, size, runs) in enumerate(drawn))
    )
)
"""Up to a dozen containers that each fit on the card alone."""


def run(workload: Sequence[Container], giver: Giver) -> Replay:
    """Replay a workload."""
    return replay(workload, giver)


GIVERS: dict[str, GiverFor] = {
    "at-creation": at_creation,
    "other-lots": partial(at_creation, draw=lambda n: n - 1),
}
