"""The wire types of kube-scheduler's extender protocol, and their conversions. Pure: bytes and values only.

Source: `k8s.io/kube-scheduler/extender/v1` of Kubernetes 1.36. Its Go types have no JSON names of their own, so the
names on the wire are those of the Go fields.
"""

from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

import msgspec
from msgspec import Raw, Struct

from plimsoll.ids import NodeName, PodUid
from plimsoll.kube.models import Named, Pod
from plimsoll.kube.names import Name
from plimsoll.part.errors import InputError, PlimsollError


class UnavailableError(PlimsollError):
    """This placer cannot answer now: it does not lead, has not read everything yet, or the API server is away."""


class NotBoundError(PlimsollError):
    """The pod was not bound by this request; kube-scheduler schedules it again."""


class UndecidedError(NotBoundError):
    """The result of the bind is not known yet. The pod keeps its room until it is."""


HIGHEST_PRIORITY: Final = 10
"""`MaxExtenderPriority`. kube-scheduler multiplies a priority by 10 and by the extender's weight."""

T = TypeVar("T")


class NodeList(Struct, frozen=True):
    """Whole Node objects, as they came: kube-scheduler uses the objects of the answer in place of its own."""

    items: list[Raw] | None = None


class ExtenderArgs(Struct, frozen=True, rename="pascal"):
    """The question of filter and prioritize.

    Attributes:
        pod: the pod that is being scheduled.
        nodes: the nodes to choose from, if the extender is not `nodeCacheCapable`.
        node_names: the nodes' names, if it is true.
    """

    pod: Pod
    nodes: NodeList | None = None
    node_names: list[NodeName] | None = None


class FilterResult(Struct, frozen=True, rename="pascal"):
    """The answer of filter.

    Attributes:
        nodes, node_names: the nodes that pass, in the form of the question.
        failed_nodes: by node, the reason against it, where evicting other pods might help.
        failed_and_unresolvable_nodes: likewise, where no eviction by kube-scheduler helps.
        error: the reason why no answer can be given; empty with an answer.
    """

    nodes: NodeList | None = None
    node_names: list[NodeName] | None = None
    failed_nodes: dict[NodeName, str] = {}
    failed_and_unresolvable_nodes: dict[NodeName, str] = {}
    error: str = ""


class HostPriority(Struct, frozen=True, rename="pascal"):
    """The priority of a node, 0 to `HIGHEST_PRIORITY`; a list of these is the answer of prioritize."""

    host: NodeName
    score: int


class BindingArgs(Struct, frozen=True, rename="pascal"):
    """The order to bind a pod to a node."""

    pod_name: Name
    pod_namespace: Name
    pod_uid: PodUid = msgspec.field(name="PodUID")
    node: NodeName

    @property
    def name(self) -> str:
        """The pod as `<namespace>/<name>`."""
        return f"{self.pod_namespace}/{self.pod_name}"


class BindingResult(Struct, frozen=True, rename="pascal"):
    """The answer of bind: the reason why the pod was not bound, or empty."""

    error: str = ""


class MetaPod(Struct, frozen=True):
    """A pod that would be evicted."""

    uid: PodUid = msgspec.field(name="UID")


class MetaVictims(Struct, frozen=True, rename="pascal"):
    """The pods that would be evicted from one node, and how many of them against a PodDisruptionBudget."""

    pods: list[MetaPod] | None = None
    num_pdb_violations: int = msgspec.field(name="NumPDBViolations", default=0)

    @property
    def uids(self) -> frozenset[PodUid]:
        """Their uids."""
        return frozenset(pod.uid for pod in self.pods or ())


class Victims(Struct, frozen=True, rename="pascal"):
    """Likewise, with whole pods."""

    pods: list[Named] | None = None
    num_pdb_violations: int = msgspec.field(name="NumPDBViolations", default=0)

    @property
    def meta(self) -> MetaVictims:
        """The victims by uid, which is the only form that an answer may have."""
        pods = [MetaPod(PodUid(pod.metadata.uid)) for pod in self.pods or ()]
        return MetaVictims(pods, self.num_pdb_violations)


class PreemptionArgs(Struct, frozen=True, rename="pascal"):
    """The question of preempt: by node, the pods that kube-scheduler would evict there.

    Attributes:
        pod: the pod that needs the room.
        node_name_to_victims: if the extender is not `nodeCacheCapable`.
        node_name_to_meta_victims: the victims' uids by node, if it is true.
    """

    pod: Pod
    node_name_to_victims: dict[NodeName, Victims] | None = None
    node_name_to_meta_victims: dict[NodeName, MetaVictims] | None = None

    @property
    def victims(self) -> dict[NodeName, MetaVictims]:
        """By node, in either form."""
        if self.node_name_to_meta_victims is not None:
            return self.node_name_to_meta_victims
        return {node: victims.meta for node, victims in (self.node_name_to_victims or {}).items()}


class PreemptionResult(Struct, frozen=True, rename="pascal"):
    """The answer of preempt: the nodes where evicting these pods helps."""

    node_name_to_meta_victims: dict[NodeName, MetaVictims]


class _NamesOf(Struct, frozen=True):
    items: list[Named] | None = None


class _Names(Struct, frozen=True, rename="pascal"):
    nodes: _NamesOf | None = None


def decode(body: bytes, kind: type[T]) -> T:
    """A question from its JSON.

    Raises:
        InputError: the body is no such question; the message names the field.
    """
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.MsgspecError as error:
        remedy = "send what kube-scheduler 1.36 sends to an extender"
        raise InputError(
            "body", body[:80].decode("utf-8", "replace"), f"cannot be read ({error})", remedy
        ) from error


def nodes_of(args: ExtenderArgs, body: bytes) -> list[NodeName]:
    """The names of the nodes to choose from.

    Args:
        args: the question.
        body: its JSON, from which the names of whole nodes are read.

    Raises:
        InputError: the question has no nodes, or a node has no name.
    """
    if args.node_names is not None:
        return args.node_names
    if args.nodes is None:
        raise InputError("Nodes", "null", "and NodeNames are both missing", "send one of them")
    listed = decode(body, _Names).nodes
    return [NodeName(node.metadata.name) for node in (listed.items if listed else None) or ()]


def filter_result(
    args: ExtenderArgs, names: Sequence[NodeName], refused: Mapping[NodeName, str]
) -> FilterResult:
    """The answer of filter, in the form of the question.

    All refusals are unresolvable. kube-scheduler evicts pods by the sums over a node alone, and it asks the extender
    only about nodes whose sums are large enough. So its preemption finds no pod to evict on a refused node, and
    would report an error ("expected at least one victim pod").

    Args:
        args: the question.
        names: the names of its nodes, in its order.
        refused: by node that does not pass, the reason.
    """
    if args.node_names is not None:
        passing = [name for name in names if name not in refused]
        return FilterResult(node_names=passing, failed_and_unresolvable_nodes=dict(refused))
    items = (args.nodes.items if args.nodes else None) or []
    kept = [item for item, name in zip(items, names, strict=True) if name not in refused]
    return FilterResult(nodes=NodeList(kept), failed_and_unresolvable_nodes=dict(refused))


def priorities(scores: Mapping[NodeName, float]) -> list[HostPriority]:
    """Priorities in proportion to the scores: the best node has `HIGHEST_PRIORITY`.

    A node without a score above 0 has 0. Nodes that are nearly as good as the best share its priority, and
    kube-scheduler chooses among them by its own scores, then at random. So a burst of pods spreads over them.
    """
    best = max(scores.values(), default=0.0)
    if best <= 0:
        return [HostPriority(name, 0) for name in scores]
    return [
        HostPriority(name, max(0, round(HIGHEST_PRIORITY * score / best))) for name, score in scores.items()
    ]
