"""Objects that only nodes with certain labels can use, found by the labels of a node.

A cluster may have a local volume and a storage capacity for each node. What always holds: the look-up costs as much
as the node has labels, and as there are things for this node, however many there are for other nodes.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping
from typing import Final, Generic, TypeVar

from plimsoll.kube.models import LabelSelector, NodeSelector, NodeSelectorRequirement

T = TypeVar("T", bound=Hashable)

Pair = tuple[str, str]
Pairs = frozenset[Pair] | None
"""A node that can use the thing has one of these labels; None if that is not known."""

_HOSTNAME: Final = "kubernetes.io/hostname"


class Pinned(Generic[T]):
    """Objects by the labels of their nodes."""

    def __init__(self) -> None:
        self._by_pair: defaultdict[Pair, dict[T, None]] = defaultdict(dict)
        self._anywhere: dict[T, None] = {}

    def add(self, thing: T, pairs: Pairs) -> None:
        """Add a thing for the nodes that have one of these labels."""
        if pairs is None:
            self._anywhere[thing] = None
        for pair in pairs or ():
            self._by_pair[pair][thing] = None

    def remove(self, thing: T, pairs: Pairs) -> None:
        """Remove a thing that was added with these labels."""
        if pairs is None:
            del self._anywhere[thing]
        for pair in pairs or ():
            del self._by_pair[pair][thing]
            if not self._by_pair[pair]:
                del self._by_pair[pair]

    def on(self, labels: Mapping[str, str]) -> Iterator[T]:
        """The things that a node with these labels may be able to use; one may come twice."""
        yield from self._anywhere
        if self._by_pair:
            for pair in labels.items():
                yield from self._by_pair.get(pair, ())


def pairs_of(selector: NodeSelector) -> Pairs:
    """Some labels: each node that the selector selects has one of them."""
    pairs: set[Pair] = set()
    for term in selector.nodeSelectorTerms:
        named = _named(term.matchExpressions or [])
        if named is None:
            return None
        pairs |= named
    return frozenset(pairs)


def pairs_of_labels(selector: LabelSelector) -> Pairs:
    """The same for a label selector."""
    exact = [frozenset({pair}) for pair in (selector.matchLabels or {}).items()]
    named = _named(selector.matchExpressions or [])
    hosts = [one for one in exact if next(iter(one))[0] == _HOSTNAME]
    return next(iter(hosts or exact), named)


def _named(requirements: list[NodeSelectorRequirement]) -> Pairs:
    """The labels that one requirement lists; that of the host's name, where there is one, lists the fewest nodes."""
    listing = [one for one in requirements if one.operator == "In"]
    hosts = [one for one in listing if one.key == _HOSTNAME]
    for one in hosts or listing:
        return frozenset((one.key, value) for value in one.values or ())
    return None
