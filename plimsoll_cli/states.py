"""The states of nodes and GPUs that keep new pods away, in the words of every command."""

from collections.abc import Iterator

from plimsoll.placer_api.http import NodeRow
from plimsoll.placer_api.live import LiveNode


def node_states(node: NodeRow | LiveNode) -> Iterator[str]:
    """A node's states; none where it takes pods. Pods that tolerate a taint get room there, and no others do."""
    if node.silent:
        yield "silent"
    yield from node.closed
    for taint in node.taints:
        yield f"taint {taint}"


def stale_cordon(uuid: str) -> str:
    """The line about a cordon that keeps nothing closed: its card was replaced, or the UUID is misspelt."""
    return f"{uuid} is cordoned, but not on this node: `plimsoll uncordon` it"
