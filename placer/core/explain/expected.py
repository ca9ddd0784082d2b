"""The memory that a best-effort pod is expected to need, and how that is known, for people."""

from placer.core.booking import Booking, learns
from placer.core.ledger import Ledger
from placer.core.owner_record import Expectation
from plimsoll.placer_api.explain import Expected
from plimsoll.quantity import format_bytes


def expected_of(owner: str | None, ledger: Ledger, learned: Expectation | None) -> Expected:
    """Explain what is expected of a container that declares no memory.

    The text leaves out the number of pods and their loads. So it stays the same while the amount does, as refusals
    repeat it.

    Args:
        owner: the owner of its pod, see `placer.core.owners`.
        ledger: what decisions count.
        learned: what was learned of the owner, or None.
    """
    size_bytes = ledger.best_effort_bytes(owner)
    return Expected(
        memory_bytes=size_bytes,
        owner=owner,
        pods=learned.samples if learned is not None else 0,
        load_s=learned.load_s if learned is not None else None,
        text=f"The pod declares no memory, and {format_bytes(size_bytes)} on a GPU is {_source(owner, learned)}.",
    )


def _source(owner: str | None, learned: Expectation | None) -> str:
    if owner is None:
        return "assumed, as nothing tells which pods do the same work"
    if learned is None:
        return f"assumed, as no pod of {owner} was measured yet"
    return f"expected, as earlier pods of {owner} needed that"


def is_expected(booking: Booking) -> bool:
    """Whether a booking has a container that declares no memory."""
    return any(learns(grant) for grant in booking.grants)
