"""Data of the events about GPUs as devices: health, pressure, and the node's hardware.

`plimsoll.events` has the reports and all other events, `plimsoll.envelope` their envelope.
"""

import enum

from msgspec import Struct

from plimsoll.ids import GpuUuid, NodeName


class HealthClass(enum.Enum):
    """How a GPU does; `plimsoll.xids` says what follows from each class."""

    HEALTHY = "healthy"
    INFO = "info"
    DEGRADED = "degraded"
    FATAL = "fatal"

    @property
    def rank(self) -> int:
        """The graver class has the greater rank."""
        return list(HealthClass).index(self)


class Condition(Struct, frozen=True, kw_only=True):
    """A defect or a restriction of a GPU.

    Attributes:
        what: `xid`, `lost` (NVML cannot read the GPU, or does not list it any more), `gone` (the machine was started
            without it, or MIG divided its card anew), `ecc` (uncorrected errors since the last reset), `retired-page`
            or `row-remap` (takes effect at the next reset), `row-remap-failure`, `recovery` (the driver asks for a
            reset), `thermal`, `power` (the hardware or the driver lowers the clocks).
        xid: the number of the XID error; None for any other condition.
        since: when it was first seen, RFC 3339 in UTC.
        text: for people.
    """

    what: str
    health: HealthClass
    since: str
    text: str
    xid: int | None = None


class GpuHealth(Struct, frozen=True, kw_only=True):
    """The health of one GPU.

    Attributes:
        index: NVML's, as last seen.
        health: the class of the gravest condition; `healthy` without any.
        since: when the class changed to this one, RFC 3339 in UTC.
        conditions: the gravest first.
    """

    gpu: GpuUuid
    index: int
    model: str
    health: HealthClass
    since: str
    conditions: tuple[Condition, ...] = ()

    @property
    def reason(self) -> str:
        """The gravest condition, for people; empty for a healthy GPU."""
        return self.conditions[0].text if self.conditions else ""


class HealthChange(GpuHealth, frozen=True, kw_only=True):
    """Data of `gpu.health`: the GPU's health after a change.

    Attributes:
        node: the GPU's node.
        before: the class before the change.
    """

    node: NodeName
    before: HealthClass


class Pressure(Struct, frozen=True, kw_only=True):
    """Data of `gpu.pressure`: the free memory of a GPU has become short, or is no longer short.

    Attributes:
        short: whether it is short now.
        since: when it became so, RFC 3339 in UTC.
        usable_bytes, used_bytes: as in the node's state.
        free_bytes: usable less used.
        limit_bytes: the free memory below which it counts as short; for an end, the free memory from which on it
            does not.
    """

    node: NodeName
    gpu: GpuUuid
    short: bool
    since: str
    usable_bytes: int
    used_bytes: int
    free_bytes: int
    limit_bytes: int


class Link(Struct, frozen=True, kw_only=True):
    """The way from one GPU to another of its node.

    Attributes:
        path: over PCIe, as `nvidia-smi topo -m` calls it: PIX, PXB, PHB, NODE or SYS; empty where it is not known.
        nvlinks: active NVLinks from one to the other directly; those over a switch are not counted.
    """

    gpu: GpuUuid
    path: str
    nvlinks: int


class GpuInfo(Struct, frozen=True, kw_only=True):
    """The hardware of one GPU.

    Attributes:
        index: NVML's; a MIG instance has that of its card.
        pci: its PCI address, such as `00000000:17:00.0`.
        numa: its NUMA node; None where the driver names none.
        cores: the CPU cores near it, as Linux lists CPUs (`0-3,8`); empty where they are not known.
        mig: it is a MIG instance. A card in MIG mode is not listed, but its instances are.
        mig_parent: for a MIG instance, the card that it is a part of; None for a whole GPU. The instance has the
            position of its card.
        links: to each other GPU of the node: its row of the link matrix. There are none to and from MIG instances.
    """

    uuid: GpuUuid
    index: int
    model: str
    pci: str
    numa: int | None = None
    cores: str = ""
    mig: bool = False
    mig_parent: GpuUuid | None = None
    links: tuple[Link, ...] = ()


class NodeInfo(Struct, frozen=True, kw_only=True):
    """Data of `node.info`: what of a node changes seldom.

    Attributes:
        heartbeat_s: the longest time between two reports of the node's state, in seconds.
        driver: the version of NVIDIA's driver.
        gpus: the GPUs that answer, by index.
        labels: the node's labels by GPU feature discovery (`nvidia.com/…`); empty without a cluster, and until the
            node was read.
    """

    node: NodeName
    heartbeat_s: float
    driver: str
    gpus: tuple[GpuInfo, ...]
    labels: dict[str, str] = {}
