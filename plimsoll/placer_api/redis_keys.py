"""Names in Redis. All keys have the same hash tag, so that on a cluster all keys of a script live in one slot."""

from typing import Final

NODES: Final = "{plimsoll}:nodes"
"""ZSET node name → score, best last."""

GPUS: Final = "{plimsoll}:gpus"
"""ZSET `<node>/<gpu uuid>` → score."""

REPORTS: Final = "{plimsoll}:reports"
"""HASH node name → the last report, a `NodeState` in JSON."""

ORDER: Final = "{plimsoll}:order"
"""HASH node name → `<epoch> <seq>` of that report: an older report is dropped."""

GENERATION: Final = "{plimsoll}:generation"
"""STRING, a random token written once the list was filled completely; absent while it is lost or not yet filled."""

LEARNED: Final = "{plimsoll}:learned"
"""HASH owner (`Deployment default/trainer`) → its pods' needs, a `placer.core.owner_record.OwnerRecord` in JSON."""

ROOMS: Final = "{plimsoll}:rooms"
"""STRING, the rooms that are kept for the replacements of moved pods, and the moves of the last hour, a
`placer.relocation.memory.StoredRelocations` in JSON."""
