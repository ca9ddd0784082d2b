"""The claims and disks of the pods that have a node. What always holds: counts are kept as pods come and go."""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from placer.core.mounts import ClaimKey, ClaimUse, Disk, Mounts
from plimsoll.ids import NodeName

K = TypeVar("K", bound=Hashable)
V = TypeVar("V", bound=Hashable)

_Name = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Moves:
    """Pods that a check counts otherwise than they are counted.

    Attributes:
        less: the mounts of pods on the node that are left out.
        more: the mounts of pods that are added.
    """

    less: Sequence[Mounts] = ()
    more: Sequence[Mounts] = ()


class Disks:
    """The disks that the pods on one node name in their own spec: two pods share a disk only if both read.

    Follows Kubernetes 1.36, plugin `volumerestrictions`.
    """

    def __init__(self) -> None:
        self._mounts: Counter[_Name] = Counter()
        self._writers: Counter[_Name] = Counter()

    def __bool__(self) -> bool:
        return bool(self._mounts)

    def add(self, disks: Iterable[Disk]) -> None:
        """Count the disks of a pod."""
        for disk in disks:
            self._mounts.update(disk.names)
            if disk.writes:
                self._writers.update(disk.names)

    def remove(self, disks: Iterable[Disk]) -> None:
        """Stop counting the disks of a pod."""
        for disk in disks:
            self._mounts -= Counter(disk.names)
            if disk.writes:
                self._writers -= Counter(disk.names)

    def copy(self) -> "Disks":
        """The same disks, which may then change apart."""
        made = Disks()
        made._mounts, made._writers = self._mounts.copy(), self._writers.copy()
        return made

    def clash(self, disks: Iterable[Disk]) -> bool:
        """Whether a pod with these disks cannot come to this node."""
        return any(
            name in (self._mounts if one.writes else self._writers) for one in disks for name in one.names
        )


class Users:
    """Claims and disks by node, and nodes by claim."""

    def __init__(self) -> None:
        self._by_node: defaultdict[NodeName, Counter[ClaimKey]] = defaultdict(Counter)
        self._by_claim: defaultdict[ClaimKey, Counter[NodeName]] = defaultdict(Counter)
        self._pods: Counter[ClaimKey] = Counter()  # those of ephemeral volumes left out, as in kube-scheduler
        self._disks: dict[NodeName, Disks] = {}

    def add(self, node: NodeName, mounts: Mounts) -> None:
        """Count the mounts of a pod on a node."""
        for use in mounts.claims:
            self._by_node[node][use.claim] += 1
            self._by_claim[use.claim][node] += 1
            self._pods[use.claim] += not use.ephemeral
        if mounts.disks:
            self._disks.setdefault(node, Disks()).add(mounts.disks)

    def remove(self, node: NodeName, mounts: Mounts) -> None:
        """Stop counting mounts that were added for this node."""
        for use in mounts.claims:
            _decrease(self._by_node, node, use.claim)
            _decrease(self._by_claim, use.claim, node)
            self._pods[use.claim] -= not use.ephemeral
            if not self._pods[use.claim]:
                del self._pods[use.claim]
        if mounts.disks:
            disks = self._disks[node]
            disks.remove(mounts.disks)
            if not disks:
                del self._disks[node]

    def has_pod(self, claim: ClaimKey, moves: Moves | None = None) -> bool:
        """Whether a pod with a node names this claim; claims of ephemeral volumes are left out."""
        if moves is None:
            return claim in self._pods
        named = ClaimUse(claim, ephemeral=False)
        less, more = (sum(one.claims.count(named) for one in part) for part in (moves.less, moves.more))
        return self._pods[claim] - less + more > 0

    def nodes_of(self, claim: ClaimKey) -> Iterable[NodeName]:
        """The nodes of the pods that use a claim."""
        return self._by_claim.get(claim, ())

    def claims_on(self, node: NodeName, moves: Moves | None = None) -> Iterable[ClaimKey]:
        """The claims of the pods on a node."""
        found = self._by_node.get(node, Counter())
        if moves is None:
            return found
        less, more = (
            Counter(use.claim for one in part for use in one.claims) for part in (moves.less, moves.more)
        )
        return found - less + more

    def disks_on(self, node: NodeName, moves: Moves | None = None) -> Disks | None:
        """The disks of the pods on a node; None if they have none."""
        found = self._disks.get(node)
        if moves is None:
            return found
        moved = found.copy() if found is not None else Disks()
        for one in moves.less:
            moved.remove(one.disks)
        for one in moves.more:
            moved.add(one.disks)
        return moved


def _decrease(counts: defaultdict[K, Counter[V]], key: K, value: V) -> None:
    counts[key][value] -= 1
    if not counts[key][value]:
        del counts[key][value]
    if not counts[key]:
        del counts[key]
