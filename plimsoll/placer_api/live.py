"""The messages of the live page's stream, `GET /v1/live`: server-sent events, each with one of these in JSON.

The stream belongs to the page of the same placer and may change with it. Programs use the API of
`plimsoll.placer_api.routes`, and the events on the bus.

| event | data | when |
| --- | --- | --- |
| `status` | `Status` | first, on each change, and as a sign of life |
| `nodes` | a list of `LiveNode` | every node once, then those that changed |
| `gone` | a list of node names | they do not report any more |
| `synced` | null | every node was sent once; the reader may drop all others |
| `waiting` | `WaitingPods` | once, then on each change |
| `news` | a list of `News` | those that are kept, then each new one |
"""

from typing import Final

from msgspec import Struct

from plimsoll.gpu_events import HealthClass
from plimsoll.ids import GpuUuid, NodeName, PodUid

LIVE_PATH: Final = "/v1/live"

ONCE: Final = "once"
"""The query by which a reader asks for one whole state: the stream ends after it, and takes no page's place."""


class Status(Struct, frozen=True, kw_only=True):
    """The placer that answers.

    Attributes:
        leads: it is the one that places pods.
        missing: what keeps it from its work, for people; empty while it is ready.
        nodes: the nodes that report, or have pods.
    """

    version: str
    leads: bool
    missing: tuple[str, ...] = ()
    nodes: int = 0


class Sharer(Struct, frozen=True, kw_only=True):
    """A pod on one GPU: its promise there, and its last measurement.

    Attributes:
        namespace, name: empty for a pod that the placer knows by its booking alone.
        expected_bytes: the memory that counts as promised.
        declared: the pod declared that memory; False: it was learned or assumed.
        limit_pct: the most compute time of any of its containers here.
        whole: it owns the GPU alone.
        used_bytes: the memory of its processes in the node's last report.
        phases: the number of its processes by `plimsoll.events.Phase`; empty before the first process.
        doubt: why it counts otherwise than its decision says; empty for nearly all pods.
    """

    pod: PodUid
    namespace: str = ""
    name: str = ""
    expected_bytes: int
    declared: bool
    share_pct: int
    limit_pct: int
    whole: bool = False
    used_bytes: int = 0
    phases: dict[str, int] = {}
    doubt: str = ""


class LiveGpu(Struct, frozen=True, kw_only=True):
    """A GPU as the page draws it.

    Attributes:
        line_bytes: the bytes that may be promised: usable × the node's overcommit ratio.
        promised_bytes, promised_share_pct: the promises to all pods together, also to those that `pods` leaves out.
        other_bytes: measured memory that belongs to no pod.
        idle_pct: decayed average of idle time, 0–100.
        health: its class; `reason` is the gravest condition, empty for a healthy GPU.
        mig: it is a MIG instance, so the driver measures no idle time.
        closed: it takes no pods now: it has a fault, is cordoned, or is outside of the pool.
        cordoned: an operator keeps new pods away from it.
        labels: the locality labels of its pods, such as `exclusion=team-a/fast`.
        pods: those with the largest promises first, `SHARERS_SHOWN` at most.
        more_pods: the number of the pods that are left out.
    """

    uuid: GpuUuid
    index: int
    model: str
    usable_bytes: int
    line_bytes: int
    used_bytes: int
    promised_bytes: int
    promised_share_pct: int
    other_bytes: int
    free_bytes: int
    idle_pct: float
    health: HealthClass = HealthClass.HEALTHY
    reason: str = ""
    mig: bool = False
    closed: bool = False
    cordoned: bool = False
    labels: tuple[str, ...] = ()
    pods: tuple[Sharer, ...] = ()
    more_pods: int = 0


class LostGpu(Struct, frozen=True, kw_only=True):
    """A GPU that cannot be read any more, or on which pods have promises although no report names it.

    Attributes:
        index: None where no report says it.
        model: empty where no report says it.
        promised_bytes, promised_share_pct, pods, more_pods: as of `LiveGpu`.
    """

    uuid: GpuUuid
    index: int | None = None
    model: str = ""
    reason: str
    promised_bytes: int = 0
    promised_share_pct: int = 0
    pods: tuple[Sharer, ...] = ()
    more_pods: int = 0


class LiveNode(Struct, frozen=True, kw_only=True):
    """A node as the page draws it.

    Attributes:
        time: when its GPUs were sampled, RFC 3339 in UTC; empty for a node that has pods and no report.
        silent: it has not reported for three of its heartbeats, or not at all.
        unenforced_since: when its broker went away, RFC 3339 in UTC; None while it is there.
        closed, taints, stale_cordons: as of `NodeRow`.
    """

    node: NodeName
    time: str
    silent: bool
    gpus: tuple[LiveGpu, ...]
    lost: tuple[LostGpu, ...] = ()
    unenforced_since: str | None = None
    closed: tuple[str, ...] = ()
    taints: tuple[str, ...] = ()
    stale_cordons: tuple[str, ...] = ()


class WaitingPod(Struct, frozen=True, kw_only=True):
    """A pod without a node.

    Attributes:
        since: its creation, RFC 3339; None where the front end does not know.
        asks: its demand of GPUs in a few words; empty where it cannot be read.
        reason: the last refusal; empty before the first.
    """

    pod: PodUid
    namespace: str
    name: str
    priority: int = 0
    since: str | None = None
    asks: str = ""
    reason: str = ""


class WaitingPods(Struct, frozen=True, kw_only=True):
    """The pods without a node.

    Attributes:
        total: the number of all of them.
        pods: the first by priority and age, `placer.live.waiting.SHOWN` at most.
        reasons: the most frequent reasons of all of them, each with its number of pods.
    """

    total: int = 0
    pods: tuple[WaitingPod, ...] = ()
    reasons: tuple[tuple[str, int], ...] = ()


class News(Struct, frozen=True, kw_only=True):
    """An event in a few words.

    Attributes:
        id: unique among those that are kept.
        time: RFC 3339 in UTC.
        what: `task.started`, `limit.denied`, …
        namespace, name: the pod's; empty for an event about no pod, or one that the placer does not know.
        text: for people.
    """

    id: str
    time: str
    what: str
    node: str = ""
    namespace: str = ""
    name: str = ""
    text: str = ""
