"""The sums of all promises, GPU by GPU. Pure.

What always holds: a sum is made anew for each check, so no earlier mistake hides a later one.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.chaos.fleet import Card


@dataclass(frozen=True, slots=True)
class Promise:
    """The promise to one container on one GPU."""

    pod: str
    container: str
    gpu: str
    memory_bytes: int
    share_pct: int
    whole: bool

    @property
    def best_effort(self) -> bool:
        """Whether no memory is promised and the GPU is shared."""
        return not self.whole and not self.memory_bytes


class Sums:
    """The promises of all pods that are bound and have not ended."""

    def __init__(self, cards: Mapping[str, Card]) -> None:
        self._cards = cards
        self._by_pod: dict[str, tuple[Promise, ...]] = {}
        self._by_gpu: defaultdict[str, dict[str, tuple[Promise, ...]]] = defaultdict(dict)
        self.checks = 0

    def put(self, pod: str, promises: Sequence[Promise]) -> None:
        """Count a pod by these promises from now on."""
        self.drop(pod)
        self._by_pod[pod] = tuple(promises)
        for promise in promises:
            before = self._by_gpu[promise.gpu].get(pod, ())
            self._by_gpu[promise.gpu][pod] = (*before, promise)

    def drop(self, pod: str) -> None:
        """Count a pod no longer."""
        for promise in self._by_pod.pop(pod, ()):
            self._by_gpu[promise.gpu].pop(pod, None)

    def of(self, pod: str) -> tuple[Promise, ...]:
        """The promises of one pod; empty if it does not count."""
        return self._by_pod.get(pod, ())

    def pods(self) -> set[str]:
        """The pods that count."""
        return set(self._by_pod)

    def on(self, gpu: str) -> tuple[Promise, ...]:
        """The promises on one GPU."""
        return tuple(promise for some in self._by_gpu[gpu].values() for promise in some)

    def bytes_on(self, gpu: str) -> int:
        """The bytes promised on one GPU, to containers that share it."""
        return sum(promise.memory_bytes for promise in self.on(gpu))

    def share_on(self, gpu: str) -> int:
        """The share promised on one GPU, in percent."""
        return sum(promise.share_pct for promise in self.on(gpu))

    def broken(self, gpu: str) -> list[str]:
        """The promises on a GPU that cannot be kept, as texts; empty if all can."""
        self.checks += 1
        card, promises = self._cards[gpu], self.on(gpu)
        problems = []
        if self.bytes_on(gpu) > card.most_bytes:
            problems.append(f"{self.bytes_on(gpu)} of {card.most_bytes} bytes are promised on {gpu}")
        if self.share_on(gpu) > 100:
            problems.append(f"{self.share_on(gpu)} % of {gpu} are promised")
        if len(promises) > 1 and any(promise.whole for promise in promises):
            problems.append(f"{gpu} was given whole and has {len(promises)} containers")
        own: Counter[str] = Counter()
        for promise in promises:
            own[promise.pod] += promise.memory_bytes
        problems += (
            f"one pod was promised {most} bytes of {gpu}" for most in own.values() if most > card.usable_bytes
        )
        return problems
