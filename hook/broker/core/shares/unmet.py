"""Requests for compute time that could not be met: announced, and counted."""

from collections import Counter
from collections.abc import Iterable

from hook.broker.core.announcer import NOBODY, Announcer, Told
from hook.broker.core.ids import ContainerKey
from hook.broker.core.shares.events import Unmet
from hook.broker.core.turns import Instruction


class UnmetRequests:
    """The node's, since this broker's start.

    Args:
        announcer: for `unmet`, once per span for as long as it lasts; with no room in the journal, only counted.
    """

    def __init__(self, announcer: Announcer) -> None:
        self._announcer = announcer
        self._counts: Counter[ContainerKey] = Counter()

    def take(self, unmet: Unmet, now_s: float) -> list[Instruction]:
        """A container got less than its request throughout one more span."""
        self._counts[unmet.container] += 1
        return self._announcer.announce_if_room(unmet.container, NOBODY, "unmet", now_s, _told(unmet))

    def count(self, container: ContainerKey) -> int:
        """How many spans there were."""
        return self._counts[container]

    def forget(self, containers: Iterable[ContainerKey]) -> None:
        """Containers are gone."""
        for container in containers:
            self._counts.pop(container, None)


def _told(unmet: Unmet) -> Told:
    used_pct = round(unmet.used_pct, 1)
    text = (
        f"wanted this GPU throughout {round(unmet.span_s, 1):g} s, and had it for {used_pct:g} % of that time"
        f" instead of the {unmet.request_pct} % it requested"
    )
    return Told(gpu=unmet.gpu, text=text, share_pct=unmet.request_pct, used_pct=used_pct)
