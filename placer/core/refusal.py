"""The reasons why no node of a pod will do."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from plimsoll.ids import NodeName


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reasons why no node will do.

    Attributes:
        reasons: the reasons by node.
        best_free_bytes: the most memory that was free on one GPU of these nodes that lacks memory and is refused for
            nothing else; None without such a GPU.
        is_final: no other node has a place either. False: the decision left out nodes that may have one.
    """

    reasons: dict[NodeName, tuple[str, ...]] = field(default_factory=dict)
    best_free_bytes: int | None = None
    is_final: bool = True


def together(refusals: Iterable[Refusal]) -> Refusal:
    """The refusals of several nodes, or pages of nodes, as one."""
    reasons: dict[NodeName, tuple[str, ...]] = {}
    best_free_bytes: int | None = None
    for refusal in refusals:
        reasons |= refusal.reasons
        best_free_bytes = _greater(best_free_bytes, refusal.best_free_bytes)
    return Refusal(reasons, best_free_bytes)


def on_no_gpu(refusals: Iterable[Refusal]) -> Refusal:
    """The refusals of a node's GPUs, each tried alone, as one of the node."""
    reasons: dict[NodeName, set[str]] = {}
    best_free_bytes: int | None = None
    for refusal in refusals:
        best_free_bytes = _greater(best_free_bytes, refusal.best_free_bytes)
        for node, why in refusal.reasons.items():
            reasons.setdefault(node, set()).update(why)
    return Refusal({node: tuple(sorted(why)) for node, why in reasons.items()}, best_free_bytes)


def _greater(one: int | None, other: int | None) -> int | None:
    return max((size for size in (one, other) if size is not None), default=None)
