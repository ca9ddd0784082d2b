"""Processes whose pages say much less of their compute time than NVML shows: announced, and counted.

What always holds: a finding is announced once, and again only after it had ended.
"""

from collections import Counter
from collections.abc import Iterable

from hook.broker.core.announcer import Announcer, Told
from hook.broker.core.facts import ContainerKey, ProcessKey
from hook.broker.core.turns import Instruction, ShareViolated, ShareViolationEnded
from plimsoll.names import GpuUuid


class ShareViolations:
    """The node's, since this broker's start.

    Args:
        announcer: for `violated`.
    """

    def __init__(self, announcer: Announcer) -> None:
        self._announcer = announcer
        self._lasting: set[tuple[ContainerKey, ProcessKey, GpuUuid]] = set()
        self._counts: Counter[ContainerKey] = Counter()

    def take(self, event: ShareViolated | ShareViolationEnded, now_s: float) -> list[Instruction]:
        """A finding was made, or made again, or has ended."""
        place = (event.container, event.process, event.gpu)
        if isinstance(event, ShareViolationEnded):
            self._lasting.discard(place)
            return []
        if place in self._lasting:
            return []
        self._lasting.add(place)
        self._counts[event.container] += 1
        return self._announcer.announce(event.container, event.process, "violated", now_s, _told(event))

    def count(self, container: ContainerKey) -> int:
        """How many findings there were."""
        return self._counts[container]

    def died(self, process: ProcessKey) -> None:
        """A process is gone, and what was found of it has ended."""
        self._lasting = {place for place in self._lasting if place[1] != process}

    def forget(self, containers: Iterable[ContainerKey]) -> None:
        """Containers are gone."""
        for container in containers:
            self._counts.pop(container, None)
            self._lasting = {place for place in self._lasting if place[0] != container}


def _told(event: ShareViolated) -> Told:
    used_pct, told_pct = round(event.used_pct, 1), round(event.told_pct, 1)
    text = f"by NVML the process used {used_pct:g} % of this GPU's time, while its page says {told_pct:g} %"
    return Told(gpu=event.gpu, text=text, used_pct=used_pct)
