"""The bodies of the placer's HTTP API, for the demo's live table, `plimsoll explain`, tests and dashboards.

`plimsoll.placer_api.routes` says which path takes and answers which of them. A request that is refused is answered
with a `Problem`.
"""

from typing import Final

from msgspec import Struct, field

from plimsoll.events import SLOWEST_HEARTBEAT_S, Task
from plimsoll.gpu_events import GpuHealth
from plimsoll.ids import GpuUuid, NodeName, PodUid

STATE_PATH: Final = "/v1/state"
PODS_PATH: Final = "/v1/pods"
NODES_PATH: Final = "/v1/nodes"
GPUS_PATH: Final = "/v1/gpus"
EXPLAIN_PATH: Final = "/v1/pods/{namespace}/{name}/explain"
RELOCATION_PATH: Final = "/v1/relocation"
OPENAPI_PATH: Final = "/v1/openapi.json"


class GpuRow(Struct, frozen=True, kw_only=True):
    """A GPU: its last report, and the promises on it in the ledger.

    Attributes:
        idle_pct: decayed average of idle time, 0–100.
        free_bytes: headroom; negative where measured use is above the promises. 0 where no pod gets any: on a silent
            node, on one that is closed, and on a GPU that is cordoned, unhealthy or outside of the pool.
        free_share_pct: compute share not yet promised, 0–100; 0 likewise.
        score: position in the sorted list; higher is better.
        labels: the locality labels of the pods on it, such as `exclusion=team-a/fast`.
        mig_parent: the card of a MIG instance; None for a card.
        cordoned: an operator keeps new pods away from it.
    """

    uuid: GpuUuid
    index: int
    model: str
    usable_bytes: int
    used_bytes: int
    idle_pct: float
    free_bytes: int
    free_share_pct: int
    score: float
    tasks: tuple[Task, ...] = ()
    labels: tuple[str, ...] = ()
    mig_parent: GpuUuid | None = None
    cordoned: bool = False


class GpuOnNode(GpuRow, frozen=True, kw_only=True):
    """A GPU with the name of its node."""

    node: NodeName


class UnreportedGpu(Struct, frozen=True, kw_only=True):
    """A GPU on which pods have promises, and that the node's last report does not name: replaced, or lost.

    Attributes:
        promised_bytes, promised_share_pct: the promises to all of its pods together.
        pods: their number.
    """

    uuid: GpuUuid
    promised_bytes: int
    promised_share_pct: int
    pods: int


class NodeRow(Struct, frozen=True, kw_only=True):
    """A node; `epoch`, `seq`, `time` and `heartbeat_s` are its last report's.

    Attributes:
        silent: the node has not reported for three of its heartbeats; nothing is placed there until it does.
        health: the GPUs that are not healthy. A fatal condition keeps pods away; a lost GPU is not in `gpus`.
        unreported: GPUs with pods that are not in `gpus`. A node of which there is no report at all has only these:
            its `time` is empty then, and it is silent.
        closed: why the node takes no new pods, by its object: `paused`, which all nodes are together, `off`,
            `cordoned`, `not ready`, or `unknown to Kubernetes`; empty for an open node.
        taints: the taints that pods must tolerate there, as `key=value:effect`.
        stale_cordons: the UUIDs that the node's annotation names as cordoned, and that are no GPUs of the node.
    """

    node: NodeName
    score: float
    epoch: int
    seq: int
    time: str
    gpus: tuple[GpuRow, ...]
    heartbeat_s: float = SLOWEST_HEARTBEAT_S
    silent: bool = False
    health: tuple[GpuHealth, ...] = ()
    unreported: tuple[UnreportedGpu, ...] = ()
    closed: tuple[str, ...] = ()
    taints: tuple[str, ...] = ()
    stale_cordons: tuple[str, ...] = ()


class NodePage(Struct, frozen=True, kw_only=True):
    """A page of nodes by name; `continue` asks for the next page, and is empty on the last one."""

    items: tuple[NodeRow, ...]
    more: str = field(name="continue", default="")


class GpuPage(Struct, frozen=True, kw_only=True):
    """A page of GPUs by node and UUID; `continue` asks for the next page, and is empty on the last one."""

    items: tuple[GpuOnNode, ...]
    more: str = field(name="continue", default="")


class PodRow(Struct, frozen=True, kw_only=True):
    """A pod that Plimsoll schedules.

    Attributes:
        phase: Pending, Running, Succeeded or Failed, as in Kubernetes.
        gpus: the GPUs of each container; empty while the pod waits.
        exit_code: exit code of the first container that failed, or 0 once all have ended; None before.
        message: why the pod waits or failed, for people.
    """

    namespace: str
    name: str
    uid: PodUid
    phase: str
    node: NodeName | None = None
    gpus: dict[str, tuple[GpuUuid, ...]] = {}
    exit_code: int | None = None
    message: str = ""


class DoubtRow(Struct, frozen=True, kw_only=True):
    """A bound pod that counts otherwise than its decision on the API server says, with the reason for people.

    Attributes:
        foreign: the placer's decision is missing or damaged, so the pod counts against every GPU of its node. False:
            somebody else changed the decision.
    """

    namespace: str
    name: str
    uid: PodUid
    node: NodeName
    foreign: bool
    reason: str


class State(Struct, frozen=True, kw_only=True):
    """All nodes and pods, for the live table; nodes in the sorted list's order, best first.

    Attributes:
        pods: the local pods.
        doubts: pods of a cluster in doubt, by namespace and name.
    """

    nodes: tuple[NodeRow, ...] = ()
    pods: tuple[PodRow, ...] = ()
    doubts: tuple[DoubtRow, ...] = ()


class Problem(Struct, frozen=True, kw_only=True):
    """The reason of a refused request."""

    message: str
