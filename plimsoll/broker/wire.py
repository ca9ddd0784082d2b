"""The messages of the broker's control socket, `<root>/broker.sock`: one JSON object a line, both ways.

Only the node's own parts reach that socket (monitor, `plimsoll run`, an operator): it is never mounted into a
container. The preload library uses `hook.sock` instead, with the datagrams of `plimsoll.broker.pages`.

Every request gets exactly one answer: `Done`, `Registered`, `Description`, `GpusRead` or `Refused`. After `Subscribe`
the broker sends every unacknowledged announcement (`plimsoll.broker.announcements`) from its journal, then each new
one. A subscriber that asks for `memory` also gets a `MemoryChange` whenever a hooked process's memory changes much.
"""

from typing import Final

from msgspec import Struct

from plimsoll.events import Gpu
from plimsoll.gpu_events import GpuHealth
from plimsoll.ids import ContainerName, GpuUuid, PodUid, ProcessKey
from plimsoll.lifespan import MAIN, Lifespan

SYSTEM_ROOT: Final = "/var/lib/plimsoll"
"""The default root directory of a machine's system broker."""

CONTROL_NAME: Final = "broker.sock"

RUN_NAMESPACE: Final = "plimsoll-run"
"""Namespace of the pods that `plimsoll run` registers. They are no cluster's pods, so only `plimsoll run` removes
them."""


class Line(Struct, frozen=True, kw_only=True):
    """A container's limits on one GPU; the JSON twin of `pages.GpuLimit`.

    Attributes:
        line_bytes: the most GPU memory.
        share_pct: guaranteed compute time, in percent of the GPU.
        limit_pct: the most compute time, in percent of the GPU.
    """

    gpu: GpuUuid
    line_bytes: int
    share_pct: int = 0
    limit_pct: int = 100


class ContainerLines(Struct, frozen=True, kw_only=True):
    """A container's lines, one for each of its GPUs.

    Attributes:
        whole: the container owns its GPUs alone.
        best_effort: the container declared no memory.
        lifespan: the part of the pod's life in which the container runs; an ordinary container's where it is absent.
        cpus: the CPUs that its processes are bound to, as Linux lists them (`0-3,8`); empty: any.
    """

    name: ContainerName
    lines: tuple[Line, ...]
    whole: bool = False
    best_effort: bool = False
    lifespan: Lifespan = MAIN
    cpus: str = ""


class Register(Struct, frozen=True, kw_only=True, tag="register"):
    """Make directories for a pod's containers; a second request with other lines changes them in place.

    Attributes:
        gpu_name: the name of its GPU, see `plimsoll.demand.PodDemand`; None for a pod without one.
        runner: the `plimsoll run` whose descendants are the pod's processes. A second request without it changes
            nothing.
    """

    pod: PodUid
    namespace: str
    name: str
    containers: tuple[ContainerLines, ...]
    gpu_name: str | None = None
    runner: ProcessKey | None = None


class Unregister(Struct, frozen=True, kw_only=True, tag="unregister"):
    """The pod is gone. Remove its directories once none of its processes lives."""

    pod: PodUid


class Subscribe(Struct, frozen=True, kw_only=True, tag="subscribe"):
    """Send announcements from now on, beginning with those not yet acknowledged.

    Attributes:
        memory: send `MemoryChange`s too.
    """

    memory: bool = False


class MemoryChange(Struct, frozen=True, kw_only=True, tag="memory"):
    """The memory of a hooked process on one GPU, by its own counts; sent to subscribers that ask for it.

    It is a state and no fact: it has no number and is in no journal, and a new subscription begins with the state of
    every living process. The counts lack what no call of the program shows, such as the code of its kernels.

    Attributes:
        pid, start_ticks: the process, as the host sees it.
        used_bytes: reserved or held now.
        peak_bytes: the largest use so far; not below `used_bytes`.
    """

    pid: int
    start_ticks: int
    gpu: GpuUuid
    used_bytes: int
    peak_bytes: int

    @property
    def process(self) -> ProcessKey:
        """The process as one identifier."""
        return ProcessKey(self.pid, self.start_ticks)


class Acknowledge(Struct, frozen=True, kw_only=True, tag="acknowledge"):
    """The subscriber has stored every announcement up to and including `seq`; the journal may forget them."""

    seq: int


class Describe(Struct, frozen=True, kw_only=True, tag="describe"):
    """Describe the registered containers and the memory that their processes hold."""


class ReadGpus(Struct, frozen=True, kw_only=True, tag="read_gpus"):
    """Read the machine's GPUs now. The broker sees them as they are; a program under a line sees its line of them."""


class MeasuredGpu(Struct, frozen=True, kw_only=True):
    """A GPU as NVML shows it.

    Attributes:
        usable_bytes: the total less what the driver reserves for itself.
        used_bytes: held by all processes together.
    """

    gpu: GpuUuid
    usable_bytes: int
    used_bytes: int


class MeasuredProcess(Struct, frozen=True, kw_only=True):
    """A process on one GPU as NVML shows it.

    Attributes:
        pid, start_ticks: as the host sees the process.
        used_bytes: all of its memory: context, modules and everything else.
        pod, container: its owner by its cgroup; None where the cgroup does not show it.
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
    """NVML's complete view at one moment: a GPU or process that is not listed is not there.

    Attributes:
        began_ns: the machine's clock just before NVML was read. If a process changed its words in `counts` since
            then, its words and this measurement are not compared.
        health: the GPUs that are not healthy.
    """

    began_ns: int
    gpus: tuple[MeasuredGpu, ...]
    processes: tuple[MeasuredProcess, ...]
    health: tuple[GpuHealth, ...] = ()


class Directories(Struct, frozen=True, kw_only=True):
    """The paths of a container's two directories on the node."""

    name: ContainerName
    limits_dir: str
    counts_dir: str


class Registered(Struct, frozen=True, kw_only=True, tag="registered"):
    """Answer to `Register`."""

    containers: tuple[Directories, ...]


class Done(Struct, frozen=True, kw_only=True, tag="done"):
    """Answer to a request that returns nothing."""


class Refused(Struct, frozen=True, kw_only=True, tag="refused"):
    """Answer to a request that cannot be fulfilled; the message names field, value and remedy."""

    message: str


class ProcessUse(Struct, frozen=True, kw_only=True):
    """The memory of one process that counts against the line.

    Attributes:
        used_bytes: per GPU, in the order of the container's lines.
        excess_bytes: the part of `used_bytes` that only NVML shows, such as a context made before its cost was known.
        denied_count: its allocations that were refused.
    """

    pid: int
    used_bytes: tuple[int, ...]
    denied_count: int
    excess_bytes: tuple[int, ...] = ()


class ShareUsed(Struct, frozen=True, kw_only=True):
    """The compute time of a container that shares its GPUs.

    Attributes:
        gate: `open`, `metered` or `shut`.
        used_pct: in percent of each GPU, over the latest second or two; None behind an open gate, where nothing is
            metered.
        waited_s: time in which a launch stood at the shut gate, because other containers were behind or because of
            the container's own limit. Counted since registration, or since a later start of the broker.
    """

    gate: str
    used_pct: float | None
    waited_s: float


class ContainerUse(Struct, frozen=True, kw_only=True):
    """A registered container with its processes.

    Attributes:
        gpu_name: the name of the pod's GPU; None for a pod without one.
        share: None where the container owns its GPUs whole, or where its files are not made yet.
        unheld_pids: its processes that use a GPU without the library.
    """

    pod: PodUid
    namespace: str
    pod_name: str
    container: ContainerLines
    processes: tuple[ProcessUse, ...]
    share: ShareUsed | None = None
    unheld_pids: tuple[int, ...] = ()
    gpu_name: str | None = None


class GpuEnforcement(Struct, frozen=True, kw_only=True):
    """The means that hold containers to their lines of memory on a GPU.

    Attributes:
        enforcement: `both`, `preload`, `driver` or `none`: what the node does, which may be less than the setting.
        reason: why the driver holds no line although the setting asks for it; empty where it holds lines.
    """

    gpu: GpuUuid
    enforcement: str
    reason: str = ""


class Description(Struct, frozen=True, kw_only=True, tag="description"):
    """Answer to `Describe`.

    Attributes:
        enforcement: for each GPU that the driver or a registered container names.
        unhealthy: for people, the class and the reason of each GPU that is not healthy.
    """

    containers: tuple[ContainerUse, ...]
    enforcement: tuple[GpuEnforcement, ...] = ()
    unhealthy: dict[GpuUuid, str] = {}


class GpusRead(Struct, frozen=True, kw_only=True, tag="gpus"):
    """Answer to `ReadGpus`.

    Attributes:
        gpus: those that can be read, with the processes on them. Without a monitor there is no decayed average, so
            `idle_pct` is of the driver's last sample.
        health: the GPUs that are not healthy. A GPU that NVML cannot read is here, and not in `gpus`.
    """

    gpus: tuple[Gpu, ...]
    health: tuple[GpuHealth, ...] = ()


BrokerRequest = Register | Unregister | Subscribe | Acknowledge | Describe | Measured | ReadGpus
BrokerAnswer = Registered | Done | Refused | Description | GpusRead
