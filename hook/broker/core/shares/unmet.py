"""Announces and counts requests for compute time that were not met."""

from collections import Counter
from collections.abc import Iterable

from hook.broker.core.announcer import Announcer, about
from hook.broker.core.ids import ContainerKey
from hook.broker.core.instructions import Instruction
from hook.broker.core.shares.events import UnmetSpan
from plimsoll.broker import announcements


class UnmetRequests:
    """The unmet requests of a node since this broker's start.

    Args:
        announcer: for `unmet`, once per span. While the journal has no room, spans are only counted.
    """

    def __init__(self, announcer: Announcer) -> None:
        self._announcer = announcer
        self._counts: Counter[ContainerKey] = Counter()

    def take(self, unmet: UnmetSpan, now_s: float) -> list[Instruction]:
        """Take in a span in which a container wanted its request throughout and got less."""
        self._counts[unmet.container] += 1
        return self._announcer.announce(_announcement(unmet), now_s)

    def count(self, container: ContainerKey) -> int:
        """The number of such spans of a container."""
        return self._counts[container]

    def forget(self, containers: Iterable[ContainerKey]) -> None:
        """Forget containers that were removed."""
        for container in containers:
            self._counts.pop(container, None)


def _announcement(unmet: UnmetSpan) -> announcements.Unmet:
    used_pct = round(unmet.used_pct, 1)
    text = (
        f"wanted this GPU throughout {round(unmet.span_s, 1):g} s, and had it for {used_pct:g} % of that time"
        f" instead of the {unmet.request_pct} % it requested"
    )
    return announcements.Unmet(
        **about(unmet.container), gpu=unmet.gpu, text=text, share_pct=unmet.request_pct, used_pct=used_pct
    )
