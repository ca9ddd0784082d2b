"""Processes whose pages say much less of their compute time than NVML shows: announced, and counted."""

from collections import Counter
from collections.abc import Iterable

from hook.broker.core.announcer import Announcer, Told
from hook.broker.core.ids import ContainerKey, ProcessKey
from hook.broker.core.shares.events import ShareViolated
from hook.broker.core.turns import Instruction


class ShareViolations:
    """The node's, since this broker's start.

    Args:
        announcer: for `violated`, once for each finding. The scheduler makes one again only after it had ended.
    """

    def __init__(self, announcer: Announcer) -> None:
        self._announcer = announcer
        self._counts: Counter[ContainerKey] = Counter()

    def take(self, event: ShareViolated, process: ProcessKey, now_s: float) -> list[Instruction]:
        """A finding was made; `NOBODY` where the process is not known by its owner word."""
        self._counts[event.container] += 1
        return self._announcer.announce(event.container, process, "violated", now_s, _told(event))

    def count(self, container: ContainerKey) -> int:
        """How many findings there were."""
        return self._counts[container]

    def forget(self, containers: Iterable[ContainerKey]) -> None:
        """Containers are gone."""
        for container in containers:
            self._counts.pop(container, None)


def _told(event: ShareViolated) -> Told:
    used_pct, told_pct = round(event.used_pct, 1), round(event.told_pct, 1)
    text = f"by NVML the process used {used_pct:g} % of this GPU's time, while its page says {told_pct:g} %"
    return Told(gpu=event.gpu, text=text, used_pct=used_pct)
