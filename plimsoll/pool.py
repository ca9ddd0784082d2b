"""The pool of shared GPUs, as placer and pool controller show it to each other: by reservation pods and one text.

A reservation pod takes a GPU from NVIDIA's device plugin, so Kubernetes hands the card to nobody else (KubeShare,
HPDC 2020, §4.4). What always holds: a GPU of a node that is not dedicated is in the pool while a reservation pod
names it, is on the node, is not being deleted, and is not asked back. So the pool is read from the API server alone,
and nothing keeps a second copy of it.

The parts speak in three steps. The placer writes `acquiring a GPU (on <nodes>)` into the condition of a pod that
needs one more GPU. The controller makes a reservation on one of them, and writes the GPU's UUID on it once the
kubelet has given it. To give a GPU back, the controller asks by `RELEASE`. The placer stops using the GPU at once,
and grants the release once no pod is booked there. So no pod is ever placed on a GPU that is being given back.

The controller learns the UUID of the node's broker, which asks the kubelet and writes `CARD`, or of the reservation's
own container, which takes a second longer.
"""

import enum
import re
from dataclasses import dataclass
from typing import Final

from plimsoll.ids import NODE_PATTERN, UUID_PATTERN, GpuUuid, NodeName, PodUid
from plimsoll.kube.models import TERMINAL_PHASES, Node, Pod

DEVICE: Final = "nvidia.com/gpu"
"""The resource of NVIDIA's device plugin: whole GPUs."""

POOL_LABEL: Final = "plimsoll.dev/pool"
DEDICATED: Final = "dedicated"
"""The label of a node, and its value for a node whose GPUs are all in the pool, without reservations."""

RESERVATION: Final = "pool.plimsoll.dev/reservation"
"""The label of reservation pods; its value is `true`. It counts in the pool's namespace alone."""
# These do not begin with `plimsoll.dev/`: the policy that freezes those on pods with a node does not concern them.
NODE: Final = "pool.plimsoll.dev/node"
"""The annotation with the node of the GPU; it is there from the reservation's creation on."""
GPU: Final = "pool.plimsoll.dev/gpu"
"""The annotation with the GPU's UUID, once it is known."""
CARD: Final = "pool.plimsoll.dev/card"
"""The annotation with the UUID that the kubelet gave to the pod, by the broker of its node."""
RELEASE: Final = "pool.plimsoll.dev/release"
"""The annotation that gives a GPU back, see `Release`."""

CARD_CONTAINER: Final = "card"
"""The reservation's first container. Its termination message is the GPU's UUID, and counts more than `CARD`: it tells
which GPU the pod has after a restart of the machine, too."""

ACQUIRING: Final = "node(s) acquiring a GPU"
"""The reason why a pod waits for a GPU that has yet to join the pool."""

_WANTED: Final = re.compile(rf"{re.escape(ACQUIRING)} \(on ([a-z0-9., -]+)\)")

MOST_NAMED: Final = 4
"""The most nodes that a pod's condition names: a burst of pods gets GPUs on several nodes at once, and a node whose
reservations fail is not the only choice. Each name takes some of the 1024 bytes of a condition's text."""


class Release(enum.Enum):
    """The steps by which a GPU leaves the pool."""

    ASKED = "asked"  # by the controller: no pod may be placed there any more
    GRANTED = "granted"  # by the placer: no pod is there


@dataclass(frozen=True, slots=True)
class Reservation:
    """A reservation pod.

    Attributes:
        name, uid, version: of the pod.
        node: the node of the GPU.
        gpu: the GPU, once it is known.
        card: the UUID that the reservation's own container found last; before that, the UUID that the node's broker
            named; None before both.
        release: the step of its release; None while the GPU is not asked back.
        bound: the pod has a node.
        unschedulable: kube-scheduler found no free GPU for it.
        leaving: the pod is being deleted.
        ended: the kubelet refused or ended the pod, so it holds no GPU.
        problem: why the pod ended or its GPU is not known, by the kubelet; empty for none.
        made: the time of its creation, RFC 3339 in UTC.
    """

    name: str
    uid: PodUid
    version: str
    node: NodeName
    gpu: GpuUuid | None = None
    card: GpuUuid | None = None
    release: Release | None = None
    bound: bool = False
    unschedulable: bool = False
    leaving: bool = False
    ended: bool = False
    problem: str = ""
    made: str = ""

    @property
    def holds(self) -> bool:
        """Whether the pod keeps its GPU from everybody else, and the GPU is known."""
        return self.gpu is not None and self.bound and not self.leaving and not self.ended

    @property
    def in_pool(self) -> bool:
        """Whether pods may be placed on its GPU."""
        return self.holds and self.release is None

    @property
    def joining(self) -> bool:
        """Whether the GPU may be in the pool soon: it is on its way, or its release can still be taken back."""
        return not self.leaving and not self.ended and not self.in_pool


def is_dedicated(node: Node) -> bool:
    """Whether all GPUs of a node are in the pool without reservations."""
    return (node.metadata.labels or {}).get(POOL_LABEL) == DEDICATED


def is_reservation(pod: Pod, namespace: str) -> bool:
    """Whether a pod is a reservation of the pool whose namespace this is."""
    return pod.metadata.namespace == namespace and (pod.metadata.labels or {}).get(RESERVATION) == "true"


def reservation_of(pod: Pod) -> Reservation:
    """A reservation pod as it stands."""
    annotations = pod.metadata.annotations or {}
    card = next((one for one in pod.status.initContainerStatuses or () if one.name == CARD_CONTAINER), None)
    ended = card.state.terminated if card is not None and card.state is not None else None
    message = (ended.message or "").strip() if ended is not None else ""
    found = GpuUuid(message) if ended is not None and ended.exitCode == 0 and _is_uuid(message) else None
    early = GpuUuid(annotations[CARD]) if _is_uuid(annotations.get(CARD, "")) else None
    scheduled = next((one for one in pod.status.conditions or () if one.type == "PodScheduled"), None)
    over = pod.status.phase in TERMINAL_PHASES
    problem = pod.status.message or pod.status.reason or "" if over else ""
    if ended is not None and found is None:
        problem = message or ended.reason or "its first container named no GPU"
    return Reservation(
        name=pod.metadata.name,
        uid=PodUid(pod.metadata.uid),
        version=pod.metadata.resourceVersion,
        node=NodeName(annotations.get(NODE, pod.spec.nodeName or "")),
        gpu=GpuUuid(annotations[GPU]) if _is_uuid(annotations.get(GPU, "")) else None,
        card=found or early,
        release=_release(annotations.get(RELEASE)),
        bound=bool(pod.spec.nodeName),
        unschedulable=scheduled is not None and scheduled.reason == "Unschedulable",
        leaving=pod.metadata.deletionTimestamp is not None,
        ended=over,
        problem=problem,
        made=pod.metadata.creationTimestamp or "",
    )


def acquiring_on(*nodes: NodeName) -> str:
    """The reason in a pod's condition that names the nodes where a GPU may be acquired, at most `MOST_NAMED`."""
    return f"{ACQUIRING} (on {', '.join(nodes)})"


def wanted_nodes(message: str) -> tuple[NodeName, ...]:
    """The nodes that a condition's text names by `acquiring_on`; none for any other text."""
    found = _WANTED.search(message)
    names = found.group(1).split(", ") if found else []
    return tuple(NodeName(name) for name in names if re.fullmatch(NODE_PATTERN, name))


def _release(value: str | None) -> Release | None:
    """An unknown value counts as asked: the GPU is not used, and nothing is given back."""
    if value is None:
        return None
    return Release.GRANTED if value == Release.GRANTED.value else Release.ASKED


def _is_uuid(text: str) -> bool:
    return bool(re.fullmatch(UUID_PATTERN, text))
