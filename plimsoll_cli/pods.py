"""`plimsoll pods`: the pods that share GPUs, what each was promised and holds, and those that wait, with the reason.

What always holds: a pod is one line, whatever the number of its GPUs.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from msgspec import Struct

from plimsoll.events import Phase
from plimsoll.ids import GpuUuid, NodeName, PodUid
from plimsoll.placer_api.live import LiveGpu, LiveNode, LostGpu, Sharer, WaitingPod
from plimsoll.quantity import format_bytes
from plimsoll_cli.asking import Where
from plimsoll_cli.columns import aligned
from plimsoll_cli.live import LiveCluster, snapshot
from plimsoll_cli.output import DOCUMENTS, document, note

HEADINGS: Final = ("STATE", "NODE", "MEMORY", "SHARE", "")
WAITING: Final = "waiting"
EMPTY: Final = "no process"
"""The state of a pod that has its GPU, and no process on it yet."""

LOST: Final = "GPU lost"
"""The state of a pod with a GPU that no report names, so that its processes there are not known."""

UNKNOWN: Final = "–"

_PHASES: Final = (Phase.STARTED.value, Phase.LOADING.value, Phase.LOADED.value)
"""In their order: a pod is as far as the process that is least far."""


class PodLine(Struct, frozen=True, kw_only=True):
    """A pod.

    Attributes:
        namespace, name: empty for a pod that the placer knows by its promise alone.
        state: `waiting`, `no process`, `started`, `loading`, `loaded` or `GPU lost`.
        gpus: its GPUs.
        promised_bytes, used_bytes, share_pct: over all of its GPUs; `share_pct` in percent of one GPU.
        since: the creation of a pod that waits, RFC 3339; None where it is not known.
        text: its demand and the reason for which it waits, or why its promise is in doubt or its GPU is lost.
    """

    pod: PodUid
    namespace: str
    name: str
    state: str
    node: NodeName | None = None
    gpus: tuple[GpuUuid, ...] = ()
    whole: bool = False
    promised_bytes: int = 0
    used_bytes: int = 0
    share_pct: int = 0
    asks: str = ""
    since: str | None = None
    text: str = ""

    @property
    def full_name(self) -> str:
        """The name with the namespace, or the uid of a pod without one."""
        return f"{self.namespace}/{self.name}" if self.name else self.pod


@dataclass(frozen=True, slots=True)
class PodFilter:
    """The pods to list; None wants any."""

    namespace: str | None = None
    node: str | None = None

    def matches(self, pod: PodLine) -> bool:
        """Whether the pod is wanted."""
        return self.namespace in {None, pod.namespace} and self.node in {None, pod.node}


async def pods(where: Where, wanted: PodFilter, form: str, width: int | None) -> str:
    """The text of the command; writes a line to standard error on what it leaves out.

    Args:
        where: the placer.
        wanted: the pods.
        form: `table`, `wide`, `json` or `yaml`.
        width: cut lines of the table to this many columns.

    Raises:
        NoPlacerError, PlacerRefusedError, StreamError: as of `snapshot`.
    """
    cluster = await snapshot(where)
    found = [pod for pod in lines_of(cluster) if wanted.matches(pod)]
    for text in _left_out(cluster, found, wanted):
        note(f"plimsoll: {text}")
    if form in DOCUMENTS:
        return document({"items": found}, form)
    is_wide = form == "wide"
    shown = table(found, with_namespace=wanted.namespace is None, wide=is_wide, width=width)
    return "".join(line + "\n" for line in shown)


def lines_of(cluster: LiveCluster) -> list[PodLine]:
    """All pods that the copy has: those with a GPU by namespace and name, then those that wait, the next first."""
    placed = [_placed(PodUid(uid), parts) for uid, parts in cluster.pods().items()]
    return [*sorted(placed, key=lambda pod: (pod.namespace, pod.name, pod.pod)), *waiting_lines(cluster)]


def waiting_lines(cluster: LiveCluster) -> list[PodLine]:
    """The pods that wait, the next first."""
    return [_waiting(pod) for pod in cluster.waiting.pods] if cluster.waiting is not None else []


def _placed(uid: PodUid, parts: Sequence[tuple[LiveNode, LiveGpu | LostGpu, Sharer]]) -> PodLine:
    first = parts[0][2]
    doubt = next((f"in doubt: {pod.doubt}" for _, _, pod in parts if pod.doubt), "")
    lost = [f"{gpu.uuid}: {gpu.reason}" for _, gpu, _ in parts if isinstance(gpu, LostGpu)]
    return PodLine(
        pod=uid,
        namespace=first.namespace,
        name=first.name,
        state=LOST if lost else state_of(pod for _, _, pod in parts),
        node=parts[0][0].node,
        gpus=tuple(gpu.uuid for _, gpu, _ in parts),
        whole=first.whole,
        promised_bytes=sum(pod.expected_bytes for _, _, pod in parts),
        used_bytes=sum(pod.used_bytes for _, _, pod in parts),
        share_pct=sum(pod.share_pct for _, _, pod in parts),
        text="; ".join(filter(None, (doubt, *lost))),
    )


def _waiting(pod: WaitingPod) -> PodLine:
    return PodLine(
        pod=pod.pod,
        namespace=pod.namespace,
        name=pod.name,
        state=WAITING,
        asks=pod.asks,
        since=pod.since,
        text=pod.reason,
    )


def state_of(parts: Iterable[Sharer]) -> str:
    """The phase of the process that is least far, or `no process`."""
    phases = {phase for pod in parts for phase, count in pod.phases.items() if count}
    return next((phase for phase in _PHASES if phase in phases), EMPTY)


def table(
    found: Iterable[PodLine], *, with_namespace: bool, wide: bool = False, width: int | None = None
) -> Iterator[str]:
    """The lines for people, the headings first; nothing where there is no pod."""
    rows = [_row(pod, with_namespace=with_namespace, wide=wide) for pod in found]
    if rows:
        name = "NAMESPACE/POD" if with_namespace else "POD"
        yield from aligned(
            [(name, *HEADINGS[:-1], *(("GPUS",) if wide else ()), HEADINGS[-1]), *rows], "", width
        )


def _row(pod: PodLine, *, with_namespace: bool, wide: bool) -> tuple[str, ...]:
    name = pod.full_name if with_namespace or not pod.name else pod.name
    more = (",".join(pod.gpus) or UNKNOWN,) if wide else ()
    if pod.state == WAITING:
        why = ": ".join(text for text in (waited(pod.since), pod.text) if text)
        return name, pod.state, UNKNOWN, UNKNOWN, UNKNOWN, *more, f"{pod.asks}; {why}" if wide else why
    memory = f"{format_bytes(pod.used_bytes)}/{format_bytes(pod.promised_bytes)}"
    share = "whole" if pod.whole else f"{pod.share_pct}%"
    return name, pod.state, pod.node or UNKNOWN, memory, share, *more, pod.text


def waited(since: str | None) -> str:
    """The time since a creation, for people: `40s`, `12m`, `5h`, `3d`; empty where it is not known."""
    if since is None:
        return ""
    try:
        began = datetime.fromisoformat(since)
    except ValueError:
        return ""
    if began.tzinfo is None:
        began = began.replace(tzinfo=UTC)
    seconds = max(0, int((datetime.now(UTC) - began).total_seconds()))
    for unit, size, most in (("s", 1, 120), ("m", 60, 7200), ("h", 3600, 172_800)):
        if seconds < most:
            return f"{seconds // size}{unit}"
    return f"{seconds // 86_400}d"


def _left_out(cluster: LiveCluster, found: Sequence[PodLine], wanted: PodFilter) -> Iterator[str]:
    if not found:
        yield "no pod with a GPU" + (f" in the namespace {wanted.namespace}" if wanted.namespace else "")
    if cluster.waiting is not None and cluster.waiting.total > len(cluster.waiting.pods):
        more = cluster.waiting.total - len(cluster.waiting.pods)
        yield f"{more} more pods wait, in all namespaces; `kubectl get pods` lists them"
    if left_out := sum(gpu.more_pods for _, gpu in cluster.gpus()):
        yield f"{left_out} more pods share GPUs that have more than 64"
