"""What goes over the broker's control socket, `<root>/broker.sock`: one JSON object a line, both ways.

Only the node's own parts reach that socket (monitor, `plimsoll run`, an operator): it is never mounted into a
container. The library talks over `hook.sock` instead, in `plimsoll.broker.pages`'s datagrams.

Every request gets exactly one answer: `Done`, `Registered`, `Description` or `Refused`. After `Subscribe` the
broker sends every `Announcement` from its journal past the last acknowledged one, then each new one.
"""

from typing import Final

from msgspec import Struct

from plimsoll.ids import ContainerName, GpuUuid, PodUid, ProcessKey

SYSTEM_ROOT: Final = "/var/lib/plimsoll"
"""The root directory of a machine's own broker, unless its settings say otherwise."""

CONTROL_NAME: Final = "broker.sock"

RUN_NAMESPACE: Final = "plimsoll-run"
"""Namespace of what `plimsoll run` registers: no cluster's pods, so nobody but it takes them away."""


class Line(Struct, frozen=True, kw_only=True):
    """What one container may use of one GPU; the JSON twin of `pages.GpuLimit`."""

    gpu: GpuUuid
    line_bytes: int
    share_pct: int = 0
    limit_pct: int = 100


class ContainerLines(Struct, frozen=True, kw_only=True):
    """One container's lines, one per GPU it was given."""

    name: ContainerName
    lines: tuple[Line, ...]
    whole: bool = False
    best_effort: bool = False


class Register(Struct, frozen=True, kw_only=True, tag="register"):
    """Lay out directories for a pod's containers; asking again with new lines changes them in place."""

    pod: PodUid
    namespace: str
    name: str
    containers: tuple[ContainerLines, ...]


class Unregister(Struct, frozen=True, kw_only=True, tag="unregister"):
    """The pod is gone: remove its directories once none of its processes lives."""

    pod: PodUid


class Subscribe(Struct, frozen=True, kw_only=True, tag="subscribe"):
    """Send announcements from now on, beginning with those not yet acknowledged."""


class Acknowledge(Struct, frozen=True, kw_only=True, tag="acknowledge"):
    """Everything up to and including `seq` is safe with the subscriber; the journal may forget it."""

    seq: int


class Describe(Struct, frozen=True, kw_only=True, tag="describe"):
    """Tell what is registered and what each container's processes hold."""


class MeasuredGpu(Struct, frozen=True, kw_only=True):
    """One GPU as NVML shows it.

    Attributes:
        usable_bytes: the total less what the driver reserves for itself.
        used_bytes: held by all processes together.
    """

    gpu: GpuUuid
    usable_bytes: int
    used_bytes: int


class MeasuredProcess(Struct, frozen=True, kw_only=True):
    """One process on one GPU as NVML shows it.

    Attributes:
        pid, start_ticks: as the host sees it.
        used_bytes: its context, modules and everything else included.
        pod, container: whose it is by its cgroup; None where that tells nothing.
    """

    pid: int
    start_ticks: int
    gpu: GpuUuid
    used_bytes: int
    pod: PodUid | None = None
    container: ContainerName | None = None

    @property
    def process(self) -> ProcessKey:
        """The process as one identifier."""
        return ProcessKey(self.pid, self.start_ticks)


class Measured(Struct, frozen=True, kw_only=True, tag="measured"):
    """What NVML shows at one moment, whole: a GPU or process that is not listed is not there.

    Attributes:
        began_ns: CLOCK_MONOTONIC just before NVML was asked. Where a process's words changed since then, they do not
            belong to what NVML shows of it.
    """

    began_ns: int
    gpus: tuple[MeasuredGpu, ...]
    processes: tuple[MeasuredProcess, ...]


class Directories(Struct, frozen=True, kw_only=True):
    """Where a container's two directories lie on the node."""

    name: ContainerName
    limits_dir: str
    counts_dir: str


class Registered(Struct, frozen=True, kw_only=True, tag="registered"):
    """Answer to `Register`."""

    containers: tuple[Directories, ...]


class Done(Struct, frozen=True, kw_only=True, tag="done"):
    """Answer to a request that returns nothing."""


class Refused(Struct, frozen=True, kw_only=True, tag="refused"):
    """Answer to a request that cannot be fulfilled, with field, value and remedy in the message."""

    message: str


class ProcessUse(Struct, frozen=True, kw_only=True):
    """What one process holds, per GPU in the order of its container's lines."""

    pid: int
    used_bytes: tuple[int, ...]
    denied_count: int


class ShareUsed(Struct, frozen=True, kw_only=True):
    """How a container that shares its GPUs fares with their compute time.

    Attributes:
        gate: `open`, `metered` or `shut`.
        used_pct: of each GPU, over the latest second or two; None behind an open gate, where nothing is metered.
        waited_s: since it was laid out, or since a later start of its broker: time in which a launch stood at the
            shut gate, because others were behind or for its own limit.
    """

    gate: str
    used_pct: float | None
    waited_s: float


class ContainerUse(Struct, frozen=True, kw_only=True):
    """A registered container with its processes.

    Attributes:
        share: None where it owns its GPUs whole, or is not laid out yet.
    """

    pod: PodUid
    namespace: str
    pod_name: str
    container: ContainerLines
    processes: tuple[ProcessUse, ...]
    share: ShareUsed | None = None


class Description(Struct, frozen=True, kw_only=True, tag="description"):
    """Answer to `Describe`."""

    containers: tuple[ContainerUse, ...]


class Announcement(Struct, frozen=True, kw_only=True, tag="announcement"):
    """Something that a hooked process did, or that happened to it.

    Attributes:
        seq: counts up over the broker's whole life, restarts included; acknowledged by it.
        what: `hello` (the process runs under its limits), `context` (NVML lists it on `gpu` from now on),
            `denied`, `unknown`, or `exited`; `paused` and `resumed` (it waits for memory that others hold;
            `text` says what it was granted or why it was refused); `violated` (NVML shows more than the line or, with
            `used_pct`, more of the GPU's time than the process's page),
            `unenforced` (a process of a declared container runs without its hook), `resized` (`line_bytes`,
            `share_pct` and `limit_pct` hold now, whichever of them changed), `unmet` (the container wanted compute
            time and got `used_pct` of `share_pct`).
        pid, start_ticks: the process, as the host sees it; 0 where it is about a container as a whole.
        time: RFC 3339 in UTC.
    """

    seq: int
    what: str
    pod: PodUid
    container: ContainerName
    pid: int
    start_ticks: int
    time: str
    gpu: GpuUuid | None = None
    requested_bytes: int = 0
    used_bytes: int = 0
    line_bytes: int = 0
    text: str = ""
    waited_s: float = 0.0
    share_pct: int = 0
    limit_pct: int = 0
    used_pct: float = 0.0

    @property
    def process(self) -> ProcessKey:
        """The process as one identifier."""
        return ProcessKey(self.pid, self.start_ticks)


Request = Register | Unregister | Subscribe | Acknowledge | Describe | Measured
Answer = Registered | Done | Refused | Description | Announcement
