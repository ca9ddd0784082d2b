"""The sums of all promises, GPU by GPU. Pure.

What always holds: a sum is made anew for each check, so no earlier mistake hides a later one.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tests.chaos.fleet import Card


@dataclass(frozen=True, slots=True)
class Promise:
    """The promise to one container on one GPU.

    Attributes:
        place: among the init containers of the pod; None for an ordinary container.
        stays: the init container is a sidecar.
    """

    pod: str
    container: str
    gpu: str
    memory_bytes: int
    share_pct: int
    whole: bool
    place: int | None = None
    stays: bool = False

    @property
    def best_effort(self) -> bool:
        """Whether no memory is promised and the GPU is shared."""
        return not self.whole and not self.memory_bytes


def moments(promises: Iterable[Promise]) -> list[list[Promise]]:
    """The promises to one pod that hold at once, for each moment of the pod's life."""
    staying: list[Promise] = []
    played: list[list[Promise]] = []
    given = list(promises)
    for place in sorted({one.place for one in given if one.place is not None}):
        begun = [one for one in given if one.place == place]
        played.append([*staying, *begun])
        staying += [one for one in begun if one.stays]
    return [*played, [*staying, *(one for one in given if one.place is None)]]


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
        """The most bytes promised on one GPU at any time, to containers that share it."""
        return sum(self._own_bytes_on(gpu).values())

    def _own_bytes_on(self, gpu: str) -> dict[str, int]:
        return {
            pod: max(sum(one.memory_bytes for one in now) for now in moments(own))
            for pod, own in self._by_gpu[gpu].items()
        }

    def share_on(self, gpu: str) -> int:
        """The most share promised on one GPU at any time, in percent."""
        pods = self._by_gpu[gpu].values()
        return sum(max(sum(one.share_pct for one in now) for now in moments(own)) for own in pods)

    def broken(self, gpu: str) -> list[str]:
        """The promises on a GPU that cannot be kept, as texts; empty if all can."""
        self.checks += 1
        card, promises = self._cards[gpu], self.on(gpu)
        problems = []
        if self.bytes_on(gpu) > card.most_bytes:
            problems.append(f"{self.bytes_on(gpu)} of {card.most_bytes} bytes are promised on {gpu}")
        if self.share_on(gpu) > 100:
            problems.append(f"{self.share_on(gpu)} % of {gpu} are promised")
        if self._is_whole_and_shared(gpu):
            problems.append(f"{gpu} was given whole and has {len(promises)} containers")
        own = self._own_bytes_on(gpu)
        problems += (
            f"one pod was promised {most} bytes of {gpu}" for most in own.values() if most > card.usable_bytes
        )
        return problems

    def _is_whole_and_shared(self, gpu: str) -> bool:
        pods = list(self._by_gpu[gpu].values())
        at_once = [now for own in pods for now in moments(own) if any(one.whole for one in now)]
        return bool(at_once) and (len(pods) > 1 or any(len(now) > 1 for now in at_once))
