"""The settings of the broker, read once in `app`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final

from msgspec import Meta

from hook.broker.core.enforcement import EnforcementName
from hook.broker.core.memory.policies import WaitPolicyName
from plimsoll.broker.wire import SYSTEM_ROOT
from plimsoll.kube.kubeconfig import ClusterSettings, check_kubeconfig
from plimsoll.part import settings
from plimsoll.part.errors import InputError
from plimsoll.part.settings import ProcessSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(ProcessSettings, ClusterSettings):
    """From the environment, for example `PLIMSOLL_BROKER_MEASURE=true`.

    Attributes:
        enforcement: what holds containers to their lines of memory. `preload`: the library in each process. `driver`:
            the driver alone, from r615 on, by the containers' control groups of version 2. `both`: the library, and
            the driver where it can. `none`: nothing; the pods still count for the placer.
        root: directory of all files of the broker. By default on disk and not in `/run`, so that the numbers of
            announcements continue after a reboot. Each broker needs its own root.
        overcommit: let processes wait for memory where lines promise more than a GPU has. Otherwise no process
            waits, and an allocation past the GPU's memory fails. Set it together with the monitor's
            `PLIMSOLL_OVERCOMMIT_RATIO`.
        wait_policy: the order of waiting requests: `fifo`, `best-fit`, `recent-use` or `random` (ConVGPU, section
            III.D).
        wait_longest_s: seconds after which a wait fails like an allocation past the line; None for never, because
            a job may wait through a night.
        measure: read NVML here, for memory that no call counts. On a node with a monitor, the monitor measures.
        node: this node's name in Kubernetes; needed with `kubeconfig`.
        kubelet_root: the kubelet's `--root-dir`, such as `/var/lib/kubelet`: serve the inline volume
            `csi: {driver: plimsoll.dev}` to this node's pods. Empty for no volume. Needs root, and the directory at
            the same path as on the node.
        pool_namespace: the namespace of the pool's reservations. The broker names the GPU of each on this node, so
            that pods need not wait for the reservation's own container. Empty: it names none.
        pod_resources: the kubelet's socket that says which pod has which GPU, for `pool_namespace`. Empty: the
            socket in `kubelet_root`.
        users_lock: a file on which the users of this broker hold a shared lock; the broker ends once none does.
            `plimsoll run` names it to a broker of its own. Empty: the broker lives until a signal.
    """

    enforcement: EnforcementName = "both"
    root: Annotated[str, Meta(min_length=1)] = SYSTEM_ROOT
    overcommit: bool = False
    wait_policy: WaitPolicyName = "fifo"
    wait_longest_s: Annotated[float, Meta(gt=0)] | None = None
    measure: bool = False
    node: str = ""
    kubelet_root: str = ""
    pool_namespace: str = ""
    pod_resources: str = ""
    users_lock: str = ""

    @property
    def pod_resources_socket(self) -> str:
        """The kubelet's socket about the devices of pods; empty where none is known."""
        if self.pod_resources or not self.kubelet_root:
            return self.pod_resources
        return f"{self.kubelet_root.rstrip('/')}/pod-resources/kubelet.sock"


PREFIX: Final = "PLIMSOLL_BROKER_"


def load(environment: Mapping[str, str]) -> Settings:
    """The settings.

    Raises:
        InputError: one is unreadable, out of bounds, unknown, or contradicts another; several in a group.
    """
    checks = {"kubeconfig": check_kubeconfig}
    return settings.load(Settings, environment, PREFIX, checks, [check_node, check_pool])


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
