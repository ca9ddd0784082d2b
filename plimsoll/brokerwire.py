"""What goes over the broker's control socket, `<root>/broker.sock`: one JSON object a line, both ways.

Only the node's own parts reach that socket (monitor, `plimsoll run`, an operator): it is never mounted into a
container. The library talks over `hook.sock` instead, in `plimsoll.layout`'s datagrams.

Every request gets exactly one answer: `Done`, `Registered`, `Description` or `Refused`. After `Subscribe` the
broker sends every `Announcement` from its journal past the last acknowledged one, then each new one.
"""

from typing import Final

from msgspec import Struct

from plimsoll.names import ContainerName, GpuUuid, PodUid

SYSTEM_ROOT: Final = "/var/lib/plimsoll"
"""The root directory of a machine's own broker, unless its settings say otherwise."""

CONTROL_NAME: Final = "broker.sock"

RUN_NAMESPACE: Final = "plimsoll-run"
"""Namespace of what `plimsoll run` registers: no cluster's pods, so nobody but it takes them away."""


class Line(Struct, frozen=True, kw_only=True):
    """What one container may use of one GPU; the JSON twin of `layout.GpuLimit`."""

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


class ContainerUse(Struct, frozen=True, kw_only=True):
    """A registered container with its processes."""

    pod: PodUid
    namespace: str
    pod_name: str
    container: ContainerLines
    processes: tuple[ProcessUse, ...]


class Description(Struct, frozen=True, kw_only=True, tag="description"):
    """Answer to `Describe`."""

    containers: tuple[ContainerUse, ...]


class Announcement(Struct, frozen=True, kw_only=True, tag="announcement"):
    """Something that a hooked process did, or that happened to it.

    Attributes:
        seq: counts up over the broker's whole life, restarts included; acknowledged by it.
        what: `hello` (the process runs under its limits), `context` (NVML lists it on `gpu` from now on),
            `denied`, `unknown`, or `exited`.
        pid, start_ticks: the process, as the host sees it.
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


Request = Register | Unregister | Subscribe | Acknowledge | Describe
Answer = Registered | Done | Refused | Description | Announcement
