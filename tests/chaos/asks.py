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
PERCENT: Final = "plimsoll.dev/gpu-memory-percent"
MIB: Final = 1 << 20

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
        memory_pct: the percent of each GPU's memory that it declares; 0 for a container that declares none.
        place: among the pod's init containers; None for an ordinary container.
        stays: the init container is a sidecar.
    """

    container: str
    gpus: int
    memory_bytes: int
    share_pct: int
    whole: bool
    memory_pct: int = 0
    place: int | None = None
    stays: bool = False

    def bytes_of(self, usable_bytes: int) -> int:
        """The bytes that the container declares on a GPU of this size."""
        return self.memory_bytes or usable_bytes * self.memory_pct // (100 * MIB) * MIB

    @property
    def best_effort(self) -> bool:
        """Whether the container declares no memory and shares its GPUs."""
        return not self.whole and not self.memory_bytes and not self.memory_pct


def quantity(text: str | float) -> Fraction:
    """A Kubernetes quantity as an exact number; raises `UnreadableError`."""
    found = _QUANTITY.fullmatch(str(text))
    if found is None:
        raise UnreadableError(f"{text!r} is no quantity")
    number, unit, exponent = found.groups()
    return Fraction(number) * (Fraction(10) ** int(exponent) if exponent else _UNITS[unit])


def asks_of(pod: Object) -> tuple[Ask, ...]:
    """The demands of a pod's containers, from its spec and its annotations of memory.

    Raises:
        UnreadableError: a number is missing, negative, broken, or does not divide.
    """
    best_effort = annotations_of(pod).get(BEST_EFFORT) == "true"
    memory_pct = int(annotations_of(pod).get(PERCENT, "0"))
    spec = pod["spec"]
    asks = [
        *(
            _ask(one, place, memory_pct, best_effort=best_effort)
            for place, one in enumerate(spec.get("initContainers") or ())
        ),
        *(_ask(one, None, memory_pct, best_effort=best_effort) for one in spec["containers"]),
    ]
    return tuple(ask for ask in asks if ask is not None)


def requested(pod: Object) -> Counter[str]:
    """The amounts of our resources in a pod's spec; a resize does not change them.

    Node and kubelet count as much, or less where the pod has init containers that end.

    Raises:
        UnreadableError: an amount is no quantity.
    """
    total: Counter[str] = Counter()
    for container in (*pod["spec"]["containers"], *(pod["spec"].get("initContainers") or ())):
        limits = container.get("resources", {}).get("limits") or {}
        total.update({name: int(quantity(text)) for name, text in limits.items() if name.startswith(DOMAIN)})
    return total


def annotations_of(pod: Object) -> dict[str, str]:
    """The pod's annotations; empty if there are none."""
    return dict(pod["metadata"].get("annotations") or {})


def _ask(container: Object, place: int | None, memory_pct: int, *, best_effort: bool) -> Ask | None:
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
    whole = not memory and not share and not best_effort and not memory_pct
    return Ask(
        container=container["name"],
        gpus=int(gpus),
        memory_bytes=int(each),
        share_pct=100 if whole else int(part),
        whole=whole,
        memory_pct=memory_pct,
        place=place,
        stays=container.get("restartPolicy") == "Always",
    )
