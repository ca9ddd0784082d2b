"""The scheduling framework: the extension points of a rule of placement, by their names in Kubernetes.

A plugin is one rule. It implements the points that it needs, and nothing else in the placer knows it: `profile` lists
the plugins in their order. What always holds: a filter reads of a pod only what its `pre_filter` gave, so pods with
equal signatures share their answers. A filter's answer changes with the node's `NodeInfo` alone, but for counts of
pods and for volumes: their states are a part of the key under which `schedule_pod` keeps answers.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final, Generic, TypeVar

from placer.core.reasons import without_unhealthy
from placer.scheduler.node_info import NodeInfo
from placer.scheduler.pods.pod_info import PodInfo
from placer.scheduler.queue.queueing_hints import EVERYTHING, NOTHING, Cause
from plimsoll.kube.models import Node

S = TypeVar("S")

UNKNOWN_NODE: Final = "node(s) were not known to the API server"
"""The reason against a node that has no object. kube-scheduler never sees such a node."""


class Plugin(Generic[S]):
    """One rule of placement. `S` is what the rule reads of a pod.

    Attributes:
        name: the plugin's name in Kubernetes, or ours.
        causes: its reasons against a node, in kube-scheduler's texts, each with its queueing hint: what has to
            change on a node before the rule may let a refused pod in. A text that varies is named by its beginning.
        resolvable: those of its reasons that the end of pods on the node can lift, so that preemption is tried.
    """

    name: ClassVar[str]
    causes: ClassVar[Mapping[str, Cause]] = {}
    resolvable: ClassVar[frozenset[str]] = frozenset()

    def pre_filter(self, info: PodInfo) -> S | None:
        """The part of a pod that the rule reads, read once; None for a pod that the rule refuses on no node."""
        raise NotImplementedError

    def sign(self, info: PodInfo) -> object:
        """The result of `pre_filter` as JSON has it. Pods with equal results of all plugins share their answers."""
        return self.pre_filter(info)

    def filter(self, wanted: S, node: NodeInfo) -> tuple[str, ...]:
        """The reasons why a node is unfit, as in `causes`; empty for a fit node."""
        raise NotImplementedError

    def reads(self, node: Node) -> Hashable:  # noqa: ARG002 - a rule that reads no object of a node
        """The part of a node's object that the rule reads, where it is more than spec, status and labels.

        A rule that keeps the `gains` of this class gives here all that it reads, labels, spec and status too.
        """
        return None

    def gains(self, node: Node, old: Node) -> Cause:
        """The queueing hint: the causes that a change of a node's object may have lifted. A heartbeat lifts none.

        Unless a rule overrides it: all its causes if `reads` changed, so none for a rule that has no `reads` either.
        """
        if self.reads(node) == self.reads(old):
            return NOTHING
        lifted = NOTHING
        for cause in self.causes.values():
            lifted |= cause
        return lifted


Filters = Sequence[tuple[Plugin[Any], Any]]
"""The plugins that have something to say about a pod, each with what it read of it."""


class Framework:
    """The plugins of one placer, in the order in which they filter: the first that objects gives the reasons."""

    def __init__(self, plugins: Iterable[Plugin[Any]]) -> None:
        """Run these plugins."""
        self.plugins: Final = tuple(plugins)
        self._causes = {UNKNOWN_NODE: Cause.NODE} | {
            reason: cause for one in self.plugins for reason, cause in one.causes.items()
        }
        self._resolvable = frozenset[str]().union(*(one.resolvable for one in self.plugins))

    def cause(self, reason: str) -> Cause:
        """The queueing hint of a reason; a reason that no plugin knows may have any cause."""
        return self._causes.get(self._named(reason), EVERYTHING)

    def is_resolvable(self, reasons: Iterable[str]) -> bool:
        """Whether the end of pods can lift all of these reasons of one node, so that preemption may help.

        kube-scheduler has the same split, by plugin: `Unschedulable` and `UnschedulableAndUnresolvable`.
        """
        return all(map(self._is_resolvable, without_unhealthy(tuple(reasons))))

    def _is_resolvable(self, reason: str) -> bool:
        return self._named(reason) in self._resolvable

    def _named(self, reason: str) -> str:
        """The reason as a plugin names it: the whole text, or else its beginning."""
        if reason in self._causes:
            return reason
        return next((text for text in self._causes if reason.startswith(text)), reason)

    def pre_filter(self, info: PodInfo) -> Filters:
        """Read a pod, once for all nodes."""
        read = ((one, one.pre_filter(info)) for one in self.plugins)
        return tuple((one, wanted) for one, wanted in read if wanted is not None)

    def gains(self, node: Node, old: Node) -> Cause:
        """The causes that a change of a node's object may have lifted."""
        lifted = NOTHING
        for one in self.plugins:
            lifted |= one.gains(node, old)
        return lifted

    def reads(self, node: Node) -> tuple[Hashable, ...]:
        """The parts of a node's object that plugins read beside spec, status and labels."""
        return tuple(one.reads(node) for one in self.plugins)


def run_filters(filters: Filters, node: NodeInfo) -> tuple[str, ...]:
    """The reasons why a node is unfit for a pod, of the first plugin that has any; empty for a fit node."""
    for plugin, wanted in filters:
        reasons = plugin.filter(wanted, node)
        if reasons:
            return reasons
    return ()
