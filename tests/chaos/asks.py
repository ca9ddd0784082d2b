"""The demands of a pod by its own spec: the judges' own parser of quantities and resources. Pure."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

Object = dict[str, Any]

DOMAIN: Final = "plimsoll.dev/"
BEST_EFFORT: Final = "plimsoll.dev/best-effort"

_QUANTITY: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?)(?:(Ki|Mi|Gi|Ti|k|M|G|T|m)|e([0-9]+))?")
_UNITS: Final[Mapping[str | None, Fraction]] = {
    None: Fraction(1),
    "m": Fraction(1, 1000),
    **{unit: Fraction(1000) ** power for power, unit in enumerate(("k", "M", "G", "T"), start=1)},
    **{unit: Fraction(1024) ** power for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti"), start=1)},
}


class UnreadableError(Exception):
    """A value in a pod makes no sense; the message names it."""


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
        """Whether the container declares no memory and shares its GPUs."""
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


def requested(pod: Object) -> Counter[str]:
    """The amounts of our resources in a pod's spec, as node and kubelet count them; a resize does not change them.

    Raises:
        UnreadableError: an amount is no quantity.
    """
    total: Counter[str] = Counter()
    for container in pod["spec"]["containers"]:
        limits = container.get("resources", {}).get("limits") or {}
        total.update({name: int(quantity(text)) for name, text in limits.items() if name.startswith(DOMAIN)})
    return total


def annotations_of(pod: Object) -> dict[str, str]:
    """The pod's annotations; empty if there are none."""
    return dict(pod["metadata"].get("annotations") or {})


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
