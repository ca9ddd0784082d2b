"""What resizes wrote on a pod: lines and shares that stand over its declaration and over the placer's decision.

What always holds: the placer alone writes both annotations, together and after its ledger allowed it; whoever counts
or enforces a pod reads its demand through `Resized.of`, so the placer and the node never disagree about it, and
neither forgets a resize when it is started anew.
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
    """Compute time of one container, on each of its GPUs the same; both always stand together.

    Attributes:
        share_pct: guaranteed.
        limit_pct: at most; never below `share_pct`.
    """

    share_pct: Annotated[int, Meta(ge=0, le=100)]
    limit_pct: Annotated[int, Meta(ge=1, le=100)]


Shares = Mapping[ContainerName, Share]


@dataclass(frozen=True, slots=True)
class Resized:
    """All that resizes changed of one pod; empty for one that was never resized."""

    lines: Lines = field(default_factory=dict)
    shares: Shares = field(default_factory=dict)

    def of(self, demand: ContainerDemand, gpu: GpuUuid) -> ContainerDemand:
        """What a container has on one of its GPUs: what resizes gave it, else what it declared.

        A whole-GPU container has nothing that a resize could change, and a best-effort one no line.
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
    """What a pod's annotations say.

    Raises:
        InputError: one of them is damaged.
    """
    return Resized(resized_lines(pod), resized_shares(pod))


def resized_lines(pod: Pod) -> Lines:
    """The lines alone; empty where none was resized.

    Raises:
        InputError: the annotation is damaged.
    """
    return _read(pod, LINES, dict[ContainerName, dict[GpuUuid, _LineBytes]])


def resized_shares(pod: Pod) -> Shares:
    """The shares alone; empty where none was resized.

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
    """What a pod's annotations say, where a damaged one counts as none; the next resize writes it anew."""
    return Resized(_or_nothing(resized_lines, pod), _or_nothing(resized_shares, pod))


def annotations_of(resized: Resized) -> dict[str, str | None]:
    """Both annotations as they are to stand on the pod, None for one that is not to be there.

    The same resizes are always the same text.
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
    except (msgspec.MsgspecError, RecursionError) as error:  # the latter: brackets nested by the thousand
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
