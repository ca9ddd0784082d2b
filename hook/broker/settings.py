"""The settings of the broker, read once in `app`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final

from msgspec import Meta

from hook.broker.core.enforcement import EnforcementName
from hook.broker.core.memory.policies import WaitPolicyName
from hook.broker.core.shares.settings import ShareSettings
from plimsoll.broker.wire import SYSTEM_ROOT
from plimsoll.kube.kubeconfig import check_kubeconfig
from plimsoll.part import settings
from plimsoll.part.entry import LogLevel
from plimsoll.part.errors import InputError

_SHARES: Final = ShareSettings()


@dataclass(frozen=True, slots=True)
class Settings:
    """From the environment, for example `PLIMSOLL_BROKER_AUDIT_S=10`.

    Attributes:
        enforcement: what holds containers to their lines of memory. `preload`: the library in each process. `driver`:
            the driver alone, from r615 on, by the containers' control groups of version 2. `both`: the library, and
            the driver where it can. `none`: nothing; the pods still count for the placer.
        cgroup_root: where the node's control groups of version 2 are mounted.
        root: directory of all files of the broker. By default on disk and not in `/run`, so that the numbers of
            announcements continue after a reboot. Each broker needs its own root.
        audit_s: seconds between two readings of every slot, for changes that no event reported.
        journal_max: announcements kept for subscribers that do not acknowledge; about 400 bytes each.
        connections_max: connections that a container's processes may hold open at once.
        overcommit: let processes wait for memory where lines promise more than a GPU has. Otherwise no process
            waits, and an allocation past the GPU's memory fails. Set it together with the monitor's
            `PLIMSOLL_OVERCOMMIT_RATIO`.
        wait_policy: the order of waiting requests: `fifo`, `best-fit`, `recent-use` or `random` (ConVGPU, section
            III.D).
        wait_remind_s: seconds between two `paused` of the same wait.
        wait_longest_s: seconds after which a wait fails like an allocation past the line; None for never, because
            a job may wait through a night.
        measure: read NVML here, for memory that no call counts. On a node with a monitor, the monitor measures.
        share_tick_ms: milliseconds between two readings and charges of GPUs that are shared or limited.
        share_quantum_ms: a container may be ahead of its due by half of this while others are behind.
        share_ahead_ms: work that a process may have queued on a shared GPU. Below a tick, the GPU may idle between
            launches.
        share_alone_ms: about the work that a process may have queued where it is alone, and so the longest wait of
            a newcomer.
        share_slice_ms: the GPU's time slice, as set by `nvidia-smi compute-policy --set-timeslice`.
        share_relax_s: a container without a limit is not metered once it was the only one that wanted its GPUs for
            this many seconds.
        share_unmet_s: a container that wanted its GPUs for this many seconds, and got less than its request, is
            announced.
        metrics_port: port of `/metrics` for Prometheus; None for none, 0 for any free port (logged).
        metrics_address: the address of the metrics' socket.
        kubeconfig: access to the cluster whose pods on this node are watched: a path, `in-cluster`, or empty for
            none.
        node: this node's name in Kubernetes; needed with `kubeconfig`.
        kubelet_root: the kubelet's `--root-dir`, such as `/var/lib/kubelet`: serve the inline volume
            `csi: {driver: plimsoll.dev}` to this node's pods. Empty for no volume. Needs root, and the directory at
            the same path as on the node.
        plugins_registry: the directory in which the kubelet looks for drivers; empty for the one in `kubelet_root`.
        pool_namespace: the namespace of the pool's reservations. The broker names the GPU of each on this node, so
            that pods need not wait for the reservation's own container. Empty: it names none.
        pod_resources: the kubelet's socket that says which pod has which GPU, for `pool_namespace`. Empty: the
            socket in `kubelet_root`.
        hook_library: the `libplimsoll.so` that pods get; empty for the one that came with this broker.
        users_lock: a file on which the users of this broker hold a shared lock; the broker ends once none does.
            `plimsoll run` names it to a broker of its own. Empty: the broker lives until a signal.
        volume_wait_s: seconds that the kubelet's request for a volume waits for the pod's lines. The kubelet gives
            up after two minutes.
        log_level: the lowest level that is logged: debug, info, warning or error.
    """

    enforcement: EnforcementName = "both"
    cgroup_root: Annotated[str, Meta(min_length=1)] = "/sys/fs/cgroup"
    root: Annotated[str, Meta(min_length=1)] = SYSTEM_ROOT
    audit_s: Annotated[float, Meta(gt=0, le=3600)] = 30.0
    journal_max: Annotated[int, Meta(ge=16, le=10_000_000)] = 100_000
    connections_max: Annotated[int, Meta(ge=1, le=1_000_000)] = 1024
    overcommit: bool = False
    wait_policy: WaitPolicyName = "fifo"
    wait_remind_s: Annotated[float, Meta(gt=0, le=86400)] = 300.0
    wait_longest_s: Annotated[float, Meta(gt=0)] | None = None
    measure: bool = False
    share_tick_ms: Annotated[float, Meta(ge=1, le=100)] = _SHARES.tick_ms
    share_quantum_ms: Annotated[float, Meta(ge=1, le=10_000)] = _SHARES.quantum_ms
    share_ahead_ms: Annotated[float, Meta(ge=1, le=1000)] = _SHARES.ahead_ms
    share_alone_ms: Annotated[float, Meta(ge=1, le=10_000)] = _SHARES.alone_ms
    share_slice_ms: Annotated[float, Meta(ge=0.1, le=100)] = _SHARES.slice_ms
    share_relax_s: Annotated[float, Meta(gt=0, le=3600)] = _SHARES.relax_s
    share_unmet_s: Annotated[float, Meta(ge=1, le=3600)] = _SHARES.unmet_s
    metrics_port: Annotated[int, Meta(ge=0, le=65535)] | None = None
    metrics_address: str = "127.0.0.1"
    kubeconfig: str = ""
    node: str = ""
    kubelet_root: str = ""
    plugins_registry: str = ""
    pool_namespace: str = ""
    pod_resources: str = ""
    hook_library: str = ""
    users_lock: str = ""
    volume_wait_s: Annotated[float, Meta(ge=0, le=100)] = 45.0
    log_level: LogLevel = "info"

    @property
    def pod_resources_socket(self) -> str:
        """The kubelet's socket about the devices of pods; empty where none is known."""
        if self.pod_resources or not self.kubelet_root:
            return self.pod_resources
        return f"{self.kubelet_root.rstrip('/')}/pod-resources/kubelet.sock"

    def shares(self) -> ShareSettings:
        """The settings of the share scheduler.

        Raises:
            InputError: `share_ahead_ms` is below a tick, or above `share_alone_ms`.
        """
        for rule in RULES:
            rule(self)
        return ShareSettings(
            tick_ms=self.share_tick_ms,
            quantum_ms=self.share_quantum_ms,
            ahead_ms=self.share_ahead_ms,
            alone_ms=self.share_alone_ms,
            slice_ms=self.share_slice_ms,
            relax_s=self.share_relax_s,
            unmet_s=self.share_unmet_s,
        )


PREFIX: Final = "PLIMSOLL_BROKER_"

RULES: Final = (
    settings.NotBelow(PREFIX, "share_ahead_ms", "share_tick_ms"),
    settings.NotBelow(PREFIX, "share_alone_ms", "share_ahead_ms"),
)


def load(environment: Mapping[str, str]) -> Settings:
    """The settings.

    Raises:
        InputError: one is unreadable, out of bounds, unknown, or contradicts another; several in a group.
    """
    rules = [check_node, check_pool, Settings.shares]
    return settings.load(Settings, environment, PREFIX, {"kubeconfig": check_kubeconfig}, rules)


def check_node(given: Settings) -> None:
    """Refuse a cluster without the node's name."""
    if given.kubeconfig and not given.node:
        raise InputError(PREFIX + "NODE", "", "is not set", "name the node whose pods to watch")


def check_pool(given: Settings) -> None:
    """Refuse a pool without the cluster or the kubelet that name its GPUs."""
    if not given.pool_namespace:
        return
    if not given.kubeconfig:
        raise InputError(
            PREFIX + "KUBECONFIG", "", "is not set", "give access to the cluster that has the pool"
        )
    if not given.pod_resources_socket:
        remedy = f"give the kubelet's socket, or {PREFIX}KUBELET_ROOT"
        raise InputError(PREFIX + "POD_RESOURCES", "", "is not set", remedy)
