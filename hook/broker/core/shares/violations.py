"""Announces and counts processes that use much more compute time by NVML than by their pages."""

from collections import Counter
from collections.abc import Iterable

from hook.broker.core.announcer import Announcer, about
from hook.broker.core.ids import ContainerKey
from hook.broker.core.instructions import Instruction
from hook.broker.core.shares.events import ShareOveruse
from plimsoll.broker import announcements
from plimsoll.ids import ProcessKey


class ShareViolations:
    """The violations on a node since this broker's start.

    Args:
        announcer: for `violated`, once per finding. The scheduler repeats a finding only after it had ended.
    """

    def __init__(self, announcer: Announcer) -> None:
        self._announcer = announcer
        self._counts: Counter[ContainerKey] = Counter()

    def take(self, event: ShareOveruse, process: ProcessKey, now_s: float) -> list[Instruction]:
        """Take in a finding; `process` is `NOBODY` if its owner word is not known."""
        self._counts[event.container] += 1
        return self._announcer.announce(_announcement(event, process), now_s)

    def count(self, container: ContainerKey) -> int:
        """The number of findings of a container."""
        return self._counts[container]

    def forget(self, containers: Iterable[ContainerKey]) -> None:
        """Forget containers that were removed."""
        for container in containers:
            self._counts.pop(container, None)


def _announcement(event: ShareOveruse, process: ProcessKey) -> announcements.ShareViolated:
    used_pct, told_pct = round(event.used_pct, 1), round(event.told_pct, 1)
    text = f"by NVML the process used {used_pct:g} % of this GPU's time, while its page says {told_pct:g} %"
    return announcements.ShareViolated(
        **about(event.container, process), gpu=event.gpu, text=text, used_pct=used_pct
    )
