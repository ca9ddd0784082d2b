"""The history of the placers' Lease, to tell which binds came from a placer that did not hold it any more.

Such a bind is no finding by itself: a request that is under way when its sender dies or is stopped may arrive after
another placer took the Lease, and no Lease can prevent that. But such a bind must not break a promise.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

LEASES: Final = "/apis/coordination.k8s.io/v1/leases"
NAME: Final = "plimsoll-placer"
"""The placers' Lease. A holder's identity begins with the name of its instance."""

Object = dict[str, Any]


@dataclass(slots=True)
class Leases:
    """A `Listener` of Leases.

    Attributes:
        versions: the resourceVersion of each change of the holder, ascending.
        holders: the identity of the holder from that version on; empty for none.
    """

    versions: list[int] = field(default_factory=list)
    holders: list[str] = field(default_factory=list)

    def take_list(self, items: Sequence[Object]) -> None:
        """See `Listener`."""
        for item in sorted(items, key=lambda one: int(one["metadata"]["resourceVersion"])):
            self.take(item, deleted=False)

    def take(self, item: Object, *, deleted: bool) -> None:
        """See `Listener`."""
        if item["metadata"]["name"] != NAME:
            return
        holder = "" if deleted else item["spec"].get("holderIdentity") or ""
        if not self.holders or holder != self.holders[-1]:
            self.versions.append(int(item["metadata"]["resourceVersion"]))
            self.holders.append(holder)

    def holder_at(self, version: int) -> str | None:
        """The identity of the holder when this version was written; None before the first."""
        index = bisect_right(self.versions, version) - 1
        return self.holders[index] if index >= 0 else None
