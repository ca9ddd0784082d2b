"""The annotations by which an operator keeps new pods away: from single GPUs of a node, and from the whole cluster.

What always holds: pods that have a place keep it. Whoever may patch nodes may cordon a node's GPUs, and whoever may
patch the release's namespace may pause the placer: RBAC alone decides.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from plimsoll.contract import comma_separated

CORDONED_GPUS: Final = "plimsoll.dev/cordoned-gpus"
"""On a node: comma-separated UUIDs of GPUs, or of MIG instances, that take no new pods. A card stands for all its
instances."""

PAUSED: Final = "plimsoll.dev/paused"
"""On the namespace of the placer: no pod is placed in the whole cluster. The value is the reason, for people. `false`
pauses nothing."""

MOST_REASON_CHARACTERS: Final = 120
"""The most characters of the reason that are shown: it stands in the text of every waiting pod."""

Annotations = Mapping[str, str] | None


def cordoned_gpus(annotations: Annotations) -> frozenset[str]:
    """The UUIDs that a node's annotations name; some may belong to no GPU of the node."""
    return frozenset(comma_separated((annotations or {}).get(CORDONED_GPUS, "")))


def cordon_value(uuids: Iterable[str]) -> str | None:
    """The annotation's value; None, which removes it in a merge patch, for no GPU."""
    return ",".join(sorted(uuids)) or None


def pause_of(annotations: Annotations) -> str | None:
    """The reason of a pause by a namespace's annotations, for people; empty without one. None: there is no pause."""
    value = (annotations or {}).get(PAUSED)
    if value is None or value.strip().lower() == "false":
        return None
    text = "".join(letter if letter.isprintable() else " " for letter in value)
    return " ".join(text.split())[:MOST_REASON_CHARACTERS]
