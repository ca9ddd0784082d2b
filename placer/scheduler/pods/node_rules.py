"""A pod's own rules about its node that other rules read too: its tolerations and its selectors. Pure."""

from dataclasses import dataclass

from placer.core.selector import Selector, selector_of
from placer.core.tolerations import Tolerations
from plimsoll.kube.models import Pod


@dataclass(frozen=True, slots=True)
class NodeRules:
    """A pod's own rules about its node.

    Attributes:
        tolerations: the taints that the node may have.
        selector: the labels and the name that the node must have.
    """

    tolerations: Tolerations
    selector: Selector


def rules_of(pod: Pod) -> NodeRules:
    """The rules of a pod about its node."""
    return NodeRules(Tolerations(pod), selector_of(pod))
