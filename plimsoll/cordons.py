"""The annotations by which an operator keeps new pods away: from single GPUs of a node, and from the whole cluster.

What always holds: pods that have a place keep it. Whoever may patch nodes may cordon a node's GPUs, and whoever may
patch the release's namespace may pause the placer: RBAC alone decides.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from plimsoll.contract import comma_separated

CORDONED_GPUS: Final = "plimsoll.dev/cordoned-gpus"
"""On a node: comma-separated UUIDs of GPUs, or of MIG instances, that take no new pods. A card stands for all its
instances."""

PAUSED: Final = "plimsoll.dev/paused"
"""On the namespace of the placer: no pod is placed in the whole cluster. The value is the reason, for people. `false`
pauses nothing."""

_HEX_UUID: Final = re.compile(r"(?i:(GPU|MIG)-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}))")
_NAME: Final = re.compile(r"(GPU|MIG)-[^\s;]+")

MOST_REASON_CHARACTERS: Final = 120
"""The most characters of the reason that are shown: it stands in the text of every waiting pod."""

Annotations = Mapping[str, str] | None


def cordoned_gpus(annotations: Annotations) -> frozenset[str]:
    """The entries of a node's annotation: UUIDs as NVML writes them, in whatever case, and all else as it stands.

    Some may belong to no GPU of the node.
    """
    return frozenset(map(_as_nvml_writes, comma_separated((annotations or {}).get(CORDONED_GPUS, ""))))


def nameless(cordoned: Iterable[str]) -> list[str]:
    """The entries that can name no GPU of any node: an index, `n1/0`, or several UUIDs without a comma."""
    return sorted(one for one in cordoned if not _NAME.fullmatch(one))


def _as_nvml_writes(entry: str) -> str:
    if (found := _HEX_UUID.fullmatch(entry)) is None:
        return entry
    return f"{found[1].upper()}-{found[2].lower()}"


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
