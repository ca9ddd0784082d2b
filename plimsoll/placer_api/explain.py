"""The answer of `GET /v1/pods/{namespace}/{name}/explain`: why a pod waits, or where it runs and what may slow it.

What always holds: a figure that the placer does not have is `None`, and a finding that would need it is `unknown`
with the reason. Nothing is guessed.
"""

import enum
from typing import Final

from msgspec import Struct, field

from plimsoll.ids import ContainerName, GpuUuid, NodeName, PodUid

CANDIDATES_SHOWN: Final = 10
"""The most nodes with a place that an explanation lists, the best first."""

NEAREST_SHOWN: Final = 5
"""The most nodes without a place for which an explanation says what would have to be freed."""

HOLDERS_SHOWN: Final = 3
"""The most pods of one namespace that an explanation names."""


class PodState(enum.Enum):
    """The states of a pod, as the placer sees it."""

    WAITING = "waiting"
    REFUSED = "refused"  # malformed, or it uses a feature that is not handled: only its author can help
    GATED = "gated"  # it has scheduling gates
    BINDING = "binding"  # decided; the API server has not confirmed it yet
    RUNNING = "running"  # it has a node; its processes may not have started yet
    ENDING = "ending"  # deleted while it waited
    ENDED = "ended"
    FOREIGN = "foreign"  # another scheduler places it


class Finding(enum.Enum):
    """The answer to whether one thing slows a pod."""

    LIKELY = "likely"
    POSSIBLE = "possible"
    UNLIKELY = "unlikely"
    UNKNOWN = "unknown"


class QueuePosition(Struct, frozen=True, kw_only=True):
    """A waiting pod's place in the queue.

    Attributes:
        place: `fresh` (never tried), `retry` (to be tried again), `deciding`, `binding`, `backoff` (an attempt failed
            for a reason that may pass by itself), `parked` (it fits nowhere, and waits for a change), `given_up`
            (only a change of the pod helps).
        since: the pod's creation, RFC 3339; None where the front end does not know.
        waits_s: seconds since this placer saw it wait first.
        attempts: the decisions that this placer made on it. Pods of one kind share refusals, so a pod may have none.
        priority: `spec.priority`.
        ahead: the pods that are tried before it; None for a pod that is not to be tried now, or behind too many.
        next_try_s: seconds until it is tried even if nothing changes; None where that has no fixed time.
        alike: the other pods that wait for the same thing and share its refusal.
        wakes_on: the changes that bring a parked pod back.
    """

    place: str
    since: str | None = None
    waits_s: float
    attempts: int = 0
    priority: int = 0
    ahead: int | None = None
    next_try_s: float | None = None
    alike: int = 0
    wakes_on: tuple[str, ...] = ()


class CandidateRow(Struct, frozen=True, kw_only=True):
    """A node that has a place for the pod now.

    Attributes:
        score: higher is better; the lowest among the pod's containers.
        gpus: the GPUs for each container.
        sub_scores: the parts of the score, by `<container>/<gpu>` and name.
    """

    node: NodeName
    score: float
    gpus: dict[str, tuple[GpuUuid, ...]] = {}
    sub_scores: dict[str, dict[str, float]] = {}


class ReasonCount(Struct, frozen=True, kw_only=True):
    """The number of nodes whose first reason is this one."""

    reason: str
    nodes: int


class NodeReasons(Struct, frozen=True, kw_only=True):
    """A node without a place, and all its reasons; it counts under the first."""

    node: NodeName
    reasons: tuple[str, ...]


class Holder(Struct, frozen=True, kw_only=True):
    """The pods of one namespace on one GPU.

    Attributes:
        namespace: theirs; empty for pods that the placer knows by their bookings alone.
        pods: their number.
        names: some of their names, the largest pod first.
        memory_bytes: the memory that counts for them: expected or measured, whichever is larger.
        share_pct: the compute time that is promised to them.
        lower_priority: how many of them have a lower priority than the pod.
    """

    namespace: str
    pods: int
    names: tuple[str, ...] = ()
    memory_bytes: int
    share_pct: int
    lower_priority: int = 0


class Shortage(Struct, frozen=True, kw_only=True):
    """The shortage of one GPU for a container.

    Attributes:
        usable_bytes: all memory of the GPU that containers may have.
        lacks_bytes: the memory that would have to be freed; 0 where memory suffices.
        lacks_share_pct: the compute time that would have to be freed, in percent of the GPU.
        must_be_empty: a whole GPU is asked for, and this one is in use.
        taken_whole: one container owns the GPU alone.
        too_many: the GPU has as many containers as may share it.
        label: the locality label that keeps the pod out, in words; empty if none does.
        unattributed_bytes: measured memory of processes that belong to no pod of the placer.
        possible: the container would fit if all pods there ended.
        holders: the pods on the GPU, by namespace, those that hold most first.
    """

    gpu: GpuUuid
    usable_bytes: int
    lacks_bytes: int = 0
    lacks_share_pct: int = 0
    must_be_empty: bool = False
    taken_whole: bool = False
    too_many: bool = False
    label: str = ""
    unattributed_bytes: int = 0
    possible: bool = True
    holders: tuple[Holder, ...] = ()


class NodeShortage(Struct, frozen=True, kw_only=True):
    """The shortages of one node, which something would have to free.

    Attributes:
        container: the container that does not fit; None where each fits alone and all together do not.
        gpus: the GPUs that need the least; as many as the container still lacks.
        lower_priority_suffices: the container would fit if the pods of lower priority on these GPUs ended.
        text: the same for people.
    """

    node: NodeName
    container: ContainerName | None = None
    gpus: tuple[Shortage, ...] = ()
    lower_priority_suffices: bool = False
    text: str


class Preemption(Struct, frozen=True, kw_only=True):
    """Whether ending pods of lower priority could make a place; judged by priority alone, on the nodes listed."""

    could_help: bool
    text: str


class Waiting(Struct, frozen=True, kw_only=True):
    """The explanation of a pod without a node.

    Attributes:
        queue: its place in the queue; None for a pod that is in none (refused, gated), and where the placer that
            leads could not be asked.
        message: the refusal that was reported last, as `kubectl describe pod` shows it; empty before the first.
        candidates: nodes that have a place now, the best first.
        nodes: all nodes of the cluster.
        reasons: the nodes without a place by their first reason, the most frequent first.
        page: nodes without a place, by name.
        more: give this as `continue` for the next page; empty on the last one.
        nearest: what would have to be freed, on the nodes where that is least.
        preemption: None where nothing would have to be freed.
        relocation: the pods that would move to make room, or move now, for people; empty without a plan.
    """

    queue: QueuePosition | None = None
    message: str = ""
    candidates: tuple[CandidateRow, ...] = ()
    nodes: int = 0
    reasons: tuple[ReasonCount, ...] = ()
    page: tuple[NodeReasons, ...] = ()
    more: str = field(name="continue", default="")
    nearest: tuple[NodeShortage, ...] = ()
    preemption: Preemption | None = None
    relocation: str = ""


class GrantRow(Struct, frozen=True, kw_only=True):
    """The part of one GPU that one container was given, and its last measurement.

    Attributes:
        line_bytes: the line that the broker enforces.
        memory_bytes: the declared size; None for best-effort and whole GPUs.
        share_pct: guaranteed compute time, in percent of the GPU.
        limit_pct: the most compute time.
        used_bytes: the memory that its processes held in the last report; None without a report of the GPU.
        processes: the number of its processes there; None likewise.
        idle_pct: the GPU's decayed idle average, 0–100; None likewise.
        sharers: the other containers that were given a part of the GPU.
    """

    container: ContainerName
    gpu: GpuUuid
    line_bytes: int
    memory_bytes: int | None = None
    share_pct: int = 0
    limit_pct: int = 100
    whole: bool = False
    used_bytes: int | None = None
    processes: int | None = None
    idle_pct: float | None = None
    sharers: int = 0


class Check(Struct, frozen=True, kw_only=True):
    """Whether one thing slows the pod: its `limit`, its `neighbours`, its `host`, or a `GPU` that is not healthy."""

    by: str
    finding: Finding
    text: str


class Running(Struct, frozen=True, kw_only=True):
    """The explanation of a pod with a node.

    Attributes:
        node: its node.
        reported: when the node's last report was sampled, RFC 3339; None without one.
        silent: the node has not reported for too long, so the measurements are old.
        grants: what it was given and holds, by container and GPU.
        policy, score, time, sub_scores: the decision's; None and empty where no decision can be read.
        expected: what was expected of containers that declare no memory when it was decided, for people.
        note: more about its place, such as the links between its GPUs, for people.
        resized: the containers that a resize has changed.
        doubt: why the pod counts otherwise than its decision says; empty for nearly all pods.
        unheld: nothing holds the pod to what it was given: somebody else bound it, without pages and library.
        taken_out: for people: its GPUs that are cordoned, and why its node takes no new pods; empty where neither is.
        verdict: a sentence for people: what slows the pod, as far as the placer knows.
        checks: its limit, its neighbours, and its host; and its GPUs where one is degraded or worse.
    """

    node: NodeName
    reported: str | None = None
    silent: bool = False
    grants: tuple[GrantRow, ...] = ()
    policy: str | None = None
    score: float | None = None
    time: str | None = None
    sub_scores: dict[str, dict[str, float]] = {}
    expected: str = ""
    note: str = ""
    resized: tuple[ContainerName, ...] = ()
    doubt: str = ""
    unheld: bool = False
    taken_out: tuple[str, ...] = ()
    verdict: str = ""
    checks: tuple[Check, ...] = ()


class Expected(Struct, frozen=True, kw_only=True):
    """The memory that a pod without a declaration is expected to need, as decisions count it now.

    Attributes:
        memory_bytes: of each of its containers that declare none, on each GPU.
        owner: the workload whose earlier pods show it, such as `Deployment default/trainer`; None if unknown.
        pods: the number of these pods; 0 if none was seen, so that an amount is assumed.
        load_s: the median time that their input took to load, in seconds; None if none was seen to load.
        text: the same for people.
    """

    memory_bytes: int
    owner: str | None = None
    pods: int = 0
    load_s: float | None = None
    text: str


class Explained(Struct, frozen=True, kw_only=True):
    """The explanation of one pod.

    Attributes:
        text: a sentence for people.
        leads: the placer that answers is the one that places. The queue of a placer that does not lead shows no
        attempts.
        expected: for a pod with containers that declare no memory.
        waiting: for a pod without a node that the placer could place.
        running: for a pod with a node.
    """

    namespace: str
    name: str
    uid: PodUid
    state: PodState
    text: str
    leads: bool = True
    expected: Expected | None = None
    waiting: Waiting | None = None
    running: Running | None = None
