"""Resizes as a pod's annotations: lines and shares that override its declaration and the placer's decision.

What always holds: the placer alone writes both annotations, together, after its ledger allowed the resize. Placer and
broker both read a pod's demand through `Resized.of`, so they never disagree about it, and neither forgets a resize
when it restarts.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Final, TypeVar

import msgspec
from msgspec import Meta, Struct

from plimsoll.contract import LINES, SHARES, ContainerDemand
from plimsoll.ids import ContainerName, GpuUuid
from plimsoll.kube.models import Pod
from plimsoll.part.errors import InputError

_Value = TypeVar("_Value")
_LineBytes = Annotated[int, Meta(gt=0, lt=1 << 62)]

Lines = Mapping[ContainerName, Mapping[GpuUuid, int]]
"""Bytes by container and GPU."""


class Share(Struct, frozen=True, kw_only=True):
    """Compute time of one container, the same on each of its GPUs; both values are always written together.

    Attributes:
        share_pct: guaranteed, in percent of each GPU.
        limit_pct: the most, in percent of each GPU; never below `share_pct`.
    """

    share_pct: Annotated[int, Meta(ge=0, le=100)]
    limit_pct: Annotated[int, Meta(ge=1, le=100)]


Shares = Mapping[ContainerName, Share]


@dataclass(frozen=True, slots=True)
class Resized:
    """The lines and shares that resizes gave one pod; empty for a pod that was never resized."""

    lines: Lines = field(default_factory=dict)
    shares: Shares = field(default_factory=dict)

    def of(self, demand: ContainerDemand, gpu: GpuUuid) -> ContainerDemand:
        """A container's demand on one of its GPUs: the resized values where there are any, else the declared ones.

        A resize cannot change a whole-GPU container, nor the line of a best-effort container, which has none.
        """
        if demand.whole:
            return demand
        share = self.shares.get(demand.container)
        if share is not None:
            demand = replace(demand, share_pct=share.share_pct, limit_pct=share.limit_pct)
        if demand.memory_bytes is None:
            return demand
        line_bytes = self.lines.get(demand.container, {}).get(gpu, demand.memory_bytes)
        return replace(demand, memory_bytes=line_bytes)


NEVER_RESIZED: Final = Resized()


def resized_of(pod: Pod) -> Resized:
    """The resizes in a pod's annotations.

    Raises:
        InputError: an annotation is damaged.
    """
    return Resized(resized_lines(pod), resized_shares(pod))


def resized_lines(pod: Pod) -> Lines:
    """The resized lines alone; empty if there are none.

    Raises:
        InputError: the annotation is damaged.
    """
    return _read(pod, LINES, dict[ContainerName, dict[GpuUuid, _LineBytes]])


def resized_shares(pod: Pod) -> Shares:
    """The resized shares alone; empty if there are none.

    Raises:
        InputError: the annotation is damaged.
    """
    shares = _read(pod, SHARES, dict[ContainerName, Share])
    for name, share in shares.items():
        if share.share_pct > share.limit_pct:
            problem = f"gives {name} a share above its limit of {share.limit_pct}"
            raise InputError(_field(SHARES), share.share_pct, problem, _remedy(SHARES))
    return shares


def readable_resizes(pod: Pod) -> Resized:
    """The resizes in a pod's annotations. A damaged annotation counts as absent; the next resize rewrites it."""
    return Resized(_or_nothing(resized_lines, pod), _or_nothing(resized_shares, pod))


def annotations_of(resized: Resized) -> dict[str, str | None]:
    """The text of both annotations; None removes an annotation.

    The same resizes always give the same text.
    """
    given: dict[str, Lines | Shares] = {LINES: resized.lines, SHARES: resized.shares}
    return {
        name: msgspec.json.encode(value, order="sorted").decode() if value else None
        for name, value in given.items()
    }


def _read(pod: Pod, name: str, kind: type[dict[ContainerName, _Value]]) -> dict[ContainerName, _Value]:
    text = (pod.metadata.annotations or {}).get(name)
    if text is None:
        return {}
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.MsgspecError, RecursionError) as error:  # RecursionError: thousands of nested brackets
        raise InputError(_field(name), text[:80], f"is damaged ({error})", _remedy(name)) from error


def _or_nothing(
    read: Callable[[Pod], Mapping[ContainerName, _Value]], pod: Pod
) -> Mapping[ContainerName, _Value]:
    try:
        return read(pod)
    except InputError:
        return {}


def _field(name: str) -> str:
    return f"metadata.annotations[{name}]"


def _remedy(name: str) -> str:
    return f"resize the pod again, or remove {name}"
