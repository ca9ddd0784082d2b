"""The independent arithmetic: reads pods as the API server stores them, and adds up what they were promised.

Pure. What always holds: a promise comes from a pod's spec, which no one can change, and from the placer's answer. The
sums are made anew for each check, so no earlier mistake hides a later one.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Final

from tests.chaos.fleet import Card

Object = dict[str, Any]

DOMAIN: Final = "plimsoll.dev/"
ANSWER: Final = "gpus.plimsoll.dev/"
DECISION: Final = "plimsoll.dev/decision"
LINES: Final = "plimsoll.dev/lines"
SHARES: Final = "plimsoll.dev/shares"
BEST_EFFORT: Final = "plimsoll.dev/best-effort"
ENDED: Final = frozenset({"Succeeded", "Failed"})

_QUANTITY: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?)(?:(Ki|Mi|Gi|Ti|k|M|G|T|m)|e([0-9]+))?")
_UNITS: Final[Mapping[str | None, Fraction]] = {
    None: Fraction(1),
    "m": Fraction(1, 1000),
    **{unit: Fraction(1000) ** power for power, unit in enumerate(("k", "M", "G", "T"), start=1)},
    **{unit: Fraction(1024) ** power for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti"), start=1)},
}


class UnreadableError(Exception):
    """A pod's own words make no sense; the message says which."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A container's demand, per GPU.

    Attributes:
        gpus: the number of distinct GPUs.
        memory_bytes: 0 for a container that declares none.
        share_pct: 100 for a container that has its GPUs alone.
        whole: the container has its GPUs alone.
    """

    container: str
    gpus: int
    memory_bytes: int
    share_pct: int
    whole: bool

    @property
    def best_effort(self) -> bool:
        """It declares no memory and shares its GPUs."""
        return not self.whole and not self.memory_bytes


@dataclass(frozen=True, slots=True)
class Promise:
    """What one container was promised on one GPU."""

    pod: str
    container: str
    gpu: str
    memory_bytes: int
    share_pct: int
    whole: bool

    @property
    def best_effort(self) -> bool:
        """It promises no memory, and the GPU is shared."""
        return not self.whole and not self.memory_bytes


def quantity(text: str | float) -> Fraction:
    """A Kubernetes quantity as an exact number; raises `UnreadableError`."""
    found = _QUANTITY.fullmatch(str(text))
    if found is None:
        raise UnreadableError(f"{text!r} is no quantity")
    number, unit, exponent = found.groups()
    return Fraction(number) * (Fraction(10) ** int(exponent) if exponent else _UNITS[unit])


def asks_of(pod: Object) -> tuple[Ask, ...]:
    """The demands of a pod's containers, from its spec and its annotation `best-effort`.

    Raises:
        UnreadableError: a number is missing, negative, broken, or does not divide.
    """
    best_effort = annotations_of(pod).get(BEST_EFFORT) == "true"
    asks = (_ask(container, best_effort=best_effort) for container in pod["spec"]["containers"])
    return tuple(ask for ask in asks if ask is not None)


def annotations_of(pod: Object) -> dict[str, str]:
    """The pod's annotations; empty if there are none."""
    return dict(pod["metadata"].get("annotations") or {})


def promises_of(pod: Object, cards: Mapping[str, Card]) -> tuple[tuple[Promise, ...], list[str]]:
    """What a bound pod was promised by the placer's answer on it, and what is wrong with that answer."""
    given = {
        name.removeprefix(ANSWER): tuple(part.strip() for part in value.split(","))
        for name, value in annotations_of(pod).items()
        if name.startswith(ANSWER)
    }
    try:
        asks = {ask.container: ask for ask in asks_of(pod)}
    except UnreadableError as error:
        return (), [f"a malformed pod is bound: {error}"]
    problems = [
        f"container {name} asks for no GPU and was given {given[name]}" for name in given.keys() - asks
    ]
    promises: list[Promise] = []
    for name, ask in asks.items():
        gpus = given.get(name, ())
        problems += _answer_problems(pod, ask, gpus, cards)
        promises += (
            Promise(pod["metadata"]["uid"], name, gpu, ask.memory_bytes, ask.share_pct, ask.whole)
            for gpu in dict.fromkeys(gpus)
            if gpu in cards
        )
    return tuple(promises), problems


def resized(promises: Sequence[Promise], pod: Object) -> tuple[Promise, ...]:
    """The promises of a bound pod after the resizes in its annotations; a whole GPU is never resized.

    Raises:
        UnreadableError: an annotation that only the placer writes is damaged.
    """
    annotations = annotations_of(pod)
    lines, shares = _json(annotations, LINES), _json(annotations, SHARES)
    return tuple(_resized(promise, lines, shares) for promise in promises)


def _resized(promise: Promise, lines: Object, shares: Object) -> Promise:
    if promise.whole:
        return promise
    line = lines.get(promise.container, {}).get(promise.gpu, promise.memory_bytes)
    share = shares.get(promise.container, {}).get("share_pct", promise.share_pct)
    return replace(promise, memory_bytes=line if promise.memory_bytes else 0, share_pct=share)


def _json(annotations: Mapping[str, str], name: str) -> Object:
    try:
        found = json.loads(annotations.get(name, "{}"))
    except ValueError as error:
        raise UnreadableError(f"{name} is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise UnreadableError(f"{name} is no JSON object")
    return found


def _ask(container: Object, *, best_effort: bool) -> Ask | None:
    limits = container.get("resources", {}).get("limits") or {}
    asked = {name: quantity(value) for name, value in limits.items() if name.startswith(DOMAIN)}
    if not asked:
        return None
    memory = asked.get("plimsoll.dev/gpu-memory", Fraction(0))
    share = asked.get("plimsoll.dev/gpu-share", Fraction(0))
    gpus = asked.get("plimsoll.dev/gpu", Fraction(1))
    if gpus < 1 or gpus.denominator != 1:
        raise UnreadableError(f"container {container['name']} asks for {gpus} GPUs")
    each, part = memory / gpus, share / gpus
    if each.denominator != 1 or part.denominator != 1 or part > 100:
        raise UnreadableError(f"container {container['name']} asks for {each} bytes and {part} % on each GPU")
    whole = not memory and not share and not best_effort
    return Ask(container["name"], int(gpus), int(each), 100 if whole else int(part), whole)


def _answer_problems(pod: Object, ask: Ask, gpus: Sequence[str], cards: Mapping[str, Card]) -> list[str]:
    node = pod["spec"]["nodeName"]
    strangers = [gpu for gpu in gpus if gpu not in cards or cards[gpu].node != node]
    problems = [
        f"container {ask.container} on {node} was given {gpu}, which is not on that node" for gpu in strangers
    ]
    if len(gpus) != ask.gpus or len(set(gpus)) != len(gpus):
        problems.append(
            f"container {ask.container} asks for {ask.gpus} distinct GPUs and was given {list(gpus)}"
        )
    return problems


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
        """What is promised on a GPU and cannot be kept; empty if all can."""
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
