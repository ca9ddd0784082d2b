"""How far a node meets a pod's wishes about other pods, by counts, as kube-scheduler's plugins score it.

Follows `pkg/scheduler/framework/plugins/{podtopologyspread,interpodaffinity}/scoring.go` of Kubernetes 1.36. But:

- A node is compared with the emptiest and the fullest domain that there are, because a decision does not read all
  nodes that fit. The order among nodes is the same.
- The terms of pods that have a node do not count towards a new pod, neither preferred nor required ones: a decision
  on a pod without such wishes reads nothing for the sake of wishes.
- A pod without spread constraints gets no default ones; it goes where fewest pods are.

What always holds: a node costs one look-up for each wish, and the choice of promising nodes reads a bounded number of
domains and nodes.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import chain, islice
from math import log
from typing import Final, TypeVar

from placer.core.selector import LabelledNode
from placer.core.wishes import Wish
from placer.scheduler.topology.counts import Tallied, Tally
from placer.scheduler.topology.wishes import DomainWishes
from plimsoll.ids import NodeName

T = TypeVar("T")

Having = Callable[[tuple[str, str]], AbstractSet[NodeName]]
"""The nodes that have a label."""

SPREAD: Final = "topology-spread"
AFFINITY: Final = "preferred-pod-affinity"

_SPREAD_WEIGHT: Final = 2
_AFFINITY_WEIGHT: Final = 2

_DOMAINS: Final = 16
"""The domains of a wish among which the best are sought: all zones of a cluster, and enough nodes to choose well."""
_NODES: Final = 64
"""The nodes of a domain that are read to find some that count."""
_SPAN: Final = 1024
"""The domains or nodes among which one choice after another moves on. Skipping all of them takes 10 µs."""


@dataclass(slots=True, eq=False)
class Gauge(Tallied[DomainWishes]):
    """A pod's wishes with the tallies that they read: of the constraints, then of the terms.

    Attributes:
        turn: the number of searches for promising nodes so far.
    """

    turn: int = field(default=0, init=False)

    def wishes(self) -> tuple[Wish, ...]:
        """The wishes with the counts of now; good until a pod or node changes."""
        found = []
        spreads = self.rules.spreads
        if spreads and all(tally.partition.sizes for tally in self.tallies[: len(spreads)]):
            found.append(Wish(SPREAD, _SPREAD_WEIGHT, self._evenness()))
        if self.rules.leanings:
            found.append(Wish(AFFINITY, _AFFINITY_WEIGHT, self._nearness()))
        return tuple(found)

    def promising(self, having: Having, most: int) -> list[NodeName]:
        """Nodes in domains that meet the wishes well, at most this many; they may be unfit.

        Calls after each other give different nodes where many are equal, so that no few nodes are filled first.
        """
        self.turn += 1
        found: dict[NodeName, None] = {}
        each = max(1, most // len(self.tallies))
        for index, tally in enumerate(self.tallies):
            leaning = index - len(self.rules.spreads)
            wants_many = leaning >= 0 and self.rules.leanings[leaning].weight > 0
            domains = _domains(tally, self.turn, wants_many=wants_many)
            for node in islice(_nodes(tally, domains, having, self.turn * each), each):
                found[node] = None
        return list(islice(found, most))

    def _evenness(self) -> Callable[[LabelledNode], float]:
        """kube-scheduler's `PodTopologySpread`: domains with fewer pods are better; a node without a key is worst."""
        parts = []
        lowest = highest = 0.0
        for spread, tally in zip(self.rules.spreads, self.tallies, strict=False):
            weight, skew = log(len(tally.partition.sizes) + 2), spread.max_skew - 1
            parts.append((spread.topology_key, tally.counts, weight, skew))
            lowest += tally.least() * weight + skew
            highest += tally.most() * weight + skew

        def met_by(offer: LabelledNode) -> float:
            labels = _labels(offer)
            score = 0.0
            for key, counts, weight, skew in parts:
                domain = labels.get(key)
                if domain is None:
                    return 0.0
                score += counts.get(domain, 0) * weight + skew
            return 1 - max(0.0, score - lowest) / highest if highest else 1.0

        return met_by

    def _nearness(self) -> Callable[[LabelledNode], float]:
        """kube-scheduler's `InterPodAffinity`: each pod in the node's domain counts by the weight of its term."""
        tallies = self.tallies[len(self.rules.spreads) :]
        parts = []
        worst = best = 0
        for one, tally in zip(self.rules.leanings, tallies, strict=True):
            parts.append((one.topology_key, tally.counts, one.weight))
            ends = (one.weight * tally.least(), one.weight * tally.most())
            worst, best = worst + min(ends), best + max(ends)

        def met_by(offer: LabelledNode) -> float:
            labels = _labels(offer)
            score = 0
            for key, counts, weight in parts:
                domain = labels.get(key)
                if domain is not None:
                    score += weight * counts.get(domain, 0)
            if score >= best:
                return 1.0
            return max(0, score - worst) / (best - worst) if best > worst else 0.0

        return met_by


def _domains(tally: Tally, turn: int, *, wants_many: bool) -> list[str]:
    """Domains with many or few pods, the best first."""
    counts = tally.counts
    if wants_many:
        return sorted(_window(counts, _DOMAINS, turn * _DOMAINS), key=lambda domain: -counts[domain])
    some = _window(tally.partition.sizes, _DOMAINS, turn * _DOMAINS)
    return sorted(some, key=lambda domain: counts.get(domain, 0))


def _nodes(tally: Tally, domains: Iterable[str], having: Having, start: int) -> Iterator[NodeName]:
    """Nodes of these domains that count."""
    partition = tally.partition
    for domain in domains:
        for node in _window(having((partition.topology_key, domain)), _NODES, start):
            if node in partition.domains:
                yield node


def _window(things: Collection[T], most: int, start: int) -> Iterator[T]:
    """This many things, beginning at one of them; after the last comes the first."""
    if not things:
        return iter(())
    first = islice(things, start % min(len(things), _SPAN), None)
    return islice(chain(first, things), min(most, len(things)))


def _labels(offer: LabelledNode) -> Mapping[str, str]:
    return offer.node.metadata.labels or {}
