"""The data of the events on the bus, each complete enough to act on alone; `plimsoll.envelope` has what is around it.

A task or state event carries the node's whole state at that moment. So a reader can rescore the node by one event,
and can drop a late one. Where very many tasks start or end at once, their last event alone carries it. Order within a
node is the pair (`epoch`, `seq`). docs/events.md says what subscribers may rely on, and docs/events/ has the schemas.
"""

import enum
from typing import Final

from msgspec import UNSET, Struct, UnsetType

from plimsoll.gpu_events import GpuHealth, HealthChange, NodeInfo, Pressure
from plimsoll.ids import (
    ContainerName,
    GpuUuid,
    NodeName,
    PodUid,
    ProcessKey,
)

SLOWEST_HEARTBEAT_S: Final = 3600.0
"""The slowest heartbeat of a monitor, in seconds; readers may forget a node that is silent for longer."""

SILENT_HEARTBEATS: Final = 3
"""A node that has not reported for this many of its heartbeats is silent: the placer places nothing there."""

LIMIT_EVENTS: Final = frozenset({"violated", "unenforced", "denied", "paused", "resumed", "resized", "unmet"})
"""The `<what>` of `limit.<what>` events; a broker's announcement of the same name becomes such an event."""

LARGEST: Final = 2**53
"""The greatest number in an event: JSON readers round greater ones, and our floats would lose digits."""

LONGEST_MODEL: Final = 95
"""The most characters of a GPU's model, as in NVML."""

LARGEST_RATIO: Final = 10.0
"""The most bytes that a node may promise per usable byte."""


class Phase(enum.Enum):
    """The phases of a task's life (Kang et al. 2024, §II.B)."""

    STARTED = "started"  # on a GPU; its memory has not risen yet
    LOADING = "loading"  # its memory is rising
    LOADED = "loaded"  # its memory rose and then stood still: the input is loaded
    EXITED = "exited"


TASKS_AT_MOST: Final = 1024
"""The most tasks of a state, some 300 KiB. NATS takes no message above 1 MiB by default."""


class Task(Struct, frozen=True, kw_only=True):
    """A process on one GPU; on a node with more than 1024 of them, all processes of a container on one GPU.

    Attributes:
        pid: the pid as the host sees it.
        start_ticks: the process's start time in clock ticks since boot; with `pid`, unique on a machine.
        used_bytes: GPU memory held now, by NVML.
        peak_bytes: the largest `used_bytes` so far.
        pod, container: the process's owner; None for a process that belongs to no known pod.
        processes: absent for one process. Otherwise their number: bytes are sums, `phase` is the phase of
            the process that has come least far, and `pid` and `start_ticks` are those of one of them.
    """

    pid: int
    start_ticks: int
    gpu: GpuUuid
    phase: Phase
    used_bytes: int
    peak_bytes: int
    pod: PodUid | None = None
    container: ContainerName | None = None
    processes: int | UnsetType = UNSET

    @property
    def count(self) -> int:
        """The number of processes."""
        return 1 if self.processes is UNSET else self.processes

    @property
    def process(self) -> ProcessKey:
        """The process as one identifier."""
        return ProcessKey(self.pid, self.start_ticks)


class Gpu(Struct, frozen=True, kw_only=True):
    """A GPU at one moment.

    Attributes:
        index: NVML's; a MIG instance has that of its card.
        usable_bytes: NVML's total less what the driver reserves for itself.
        used_bytes: held by all processes together, at most `usable_bytes`.
        idle_pct: decayed average of idle time, 0 (always busy) to 100 (always idle). The driver measures no
            utilisation in MIG mode, so a MIG instance has 100.
        overcommit_ratio: bytes that may be promised per usable byte; above 0, at most `LARGEST_RATIO`.
        tasks: every process on the GPU that has not exited. Of more than 1024 entries of a node, those with
            the least memory are left out; `used_bytes` has it.
        mig_parent: for a MIG instance, the card that it is a part of; None for a whole GPU.
        memory_busy_pct: the part of the time in which its memory was read or written, 0 to 100, averaged as
            `idle_pct` is; None where the driver does not measure it.
    """

    uuid: GpuUuid
    index: int
    model: str
    usable_bytes: int
    used_bytes: int
    idle_pct: float
    overcommit_ratio: float = 1.0
    tasks: tuple[Task, ...] = ()
    mig_parent: GpuUuid | None = None
    memory_busy_pct: float | None = None


class NodeState(Struct, frozen=True, kw_only=True):
    """All GPUs of one node at one moment.

    Attributes:
        epoch: one more at each start of the monitor, kept on the node's disk; never falls. At most
            `largest_epoch`.
        seq: one more with each report of one epoch, from 1.
        time: when the GPUs were sampled, RFC 3339 in UTC.
        heartbeat_s: the longest time until the monitor's next report, in seconds; above 0, at most
            `SLOWEST_HEARTBEAT_S`, which holds where a report does not name it.
        health: the GPUs that are not healthy. A GPU that NVML cannot read is here, and not in `gpus`.
        short: the GPUs whose free memory is short (`gpu.pressure`), and since when, RFC 3339 in UTC.
        broker_away_since: when this node's broker went away, RFC 3339 in UTC; None while it is there.
        omitted: this is no state. Of many events that came at once, the last one alone carries the state. `epoch` and
            `seq` are those of the state before; there are no GPUs.
    """

    node: NodeName
    epoch: int
    seq: int
    time: str
    gpus: tuple[Gpu, ...]
    heartbeat_s: float = SLOWEST_HEARTBEAT_S
    health: tuple[GpuHealth, ...] = ()
    short: dict[GpuUuid, str] = {}
    broker_away_since: str | None = None
    omitted: bool | UnsetType = UNSET

    @property
    def is_omitted(self) -> bool:
        """Whether there is no state here, see `omitted`."""
        return self.omitted is True

    @property
    def order(self) -> tuple[int, int]:
        """(`epoch`, `seq`): the newer state has the greater pair."""
        return (self.epoch, self.seq)


class Report(Struct, frozen=True, kw_only=True):
    """Data of a task or state event: the node's state, and the task that the event is about."""

    state: NodeState
    task: Task | None = None


class Limit(Struct, frozen=True, kw_only=True):
    """Data of every `limit.<what>` event.

    Attributes:
        pid: the pid as the host sees it; 0 where the event is about the container as a whole.
        requested_bytes: size of the allocation that was refused or waits; 0 where there is none.
        used_bytes: memory that the container holds on the GPU; by NVML for `violated` and `unenforced`, else by its
            counts.
        line_bytes: the container's line on the GPU; for `resized` the new one.
        call: name of the driver's function; empty where it is not known.
        reason: a text for people.
        waited_s: for `resumed`, how long the allocation waited; 0 otherwise.
        share_pct: for `resized` and `unmet`, the guaranteed compute time, in percent of the GPU; 0 otherwise.
        limit_pct: for `resized`, the most compute time, in percent of the GPU; 0 otherwise.
        used_pct: in percent of the GPU's time. For `unmet`, the container's time while it wanted more. For
            `violated`, the process's time by NVML, where that is far more than its page says. 0 otherwise.
        broker_away: for `unenforced`, the cause is that the node's broker is away; it ends once the broker is back.
    """

    node: NodeName
    gpu: GpuUuid | None
    pod: PodUid
    container: ContainerName
    pid: int = 0
    requested_bytes: int = 0
    used_bytes: int = 0
    line_bytes: int = 0
    call: str = ""
    reason: str = ""
    waited_s: float = 0.0
    share_pct: int = 0
    limit_pct: int = 0
    used_pct: float = 0.0
    broker_away: bool = False


class Foreign(Struct, frozen=True, kw_only=True):
    """Data of `node.foreign`: another monitor reports under this node's name.

    Readers take the reports of the greater epoch, and drop the others as late.

    Attributes:
        epoch: the epoch of the monitor that publishes this event.
        gpus: the GPUs of that monitor's node, by UUID.
        foreign_epoch: the epoch of the other monitor's reports.
        foreign_gpus: the GPUs in them, by UUID: the machine on which the other monitor runs has these.
        reason: a text for people.
    """

    node: NodeName
    epoch: int
    gpus: tuple[GpuUuid, ...]
    foreign_epoch: int
    foreign_gpus: tuple[GpuUuid, ...]
    reason: str = ""


class Placement(Struct, frozen=True, kw_only=True):
    """Data of all `pod.<what>` events: the decision and its reason.

    Attributes:
        node: for `foreign`, the node that somebody else bound the pod to; for `preempted` and `relocated`, the node
            where it ends; None for `unplaceable`.
        gpus: by container; empty unless the pod was placed.
        reason: a text for people: why the pod waits, is foreign, ends, or moves; empty for `placed`.
        to: for `relocated`, the node on which room is kept for its replacement; None where none is.
    """

    namespace: str
    name: str
    pod: PodUid
    node: NodeName | None = None
    gpus: dict[str, list[str]] = {}
    policy: str = ""
    score: float | None = None
    reason: str = ""
    to: NodeName | None = None


class PoolChange(Struct, frozen=True, kw_only=True):
    """Data of `pool.acquired`, `pool.released` and `pool.lost`.

    Attributes:
        gpu: the GPU that joined or left the pool of shared GPUs.
        reservation: the uid of the reservation pod that took the GPU from NVIDIA's device plugin.
        pods: the uids of the pods that are booked on the GPU; for `lost`, they run on without a reservation.
    """

    node: NodeName
    gpu: GpuUuid
    reservation: PodUid
    pods: tuple[PodUid, ...] = ()


Data = Report | Limit | Placement | PoolChange | Foreign | HealthChange | Pressure | NodeInfo
