"""Announces and counts what the scheduler finds: requests for compute time that were not met, and processes that use
much more compute time by NVML than by their pages.
"""

from collections import Counter
from collections.abc import Iterable

from hook.broker.core.announcer import Announcer, about
from hook.broker.core.events import Instruction
from hook.broker.core.ids import ContainerKey
from hook.broker.core.shares.events import ShareOveruse, UnmetSpan
from plimsoll.broker import announcements
from plimsoll.ids import ProcessKey


class ShareFindings:
    """The findings on a node since this broker's start. While the journal has no room, findings are only counted.

    Attributes:
        unmet: by container, spans in which it wanted its request throughout and got less.
        overuse: by container, processes that used more than their pages say. The scheduler repeats such a finding
            only after it had ended.
    """

    def __init__(self, announcer: Announcer) -> None:
        self._announcer = announcer
        self.unmet: Counter[ContainerKey] = Counter()
        self.overuse: Counter[ContainerKey] = Counter()

    def take_unmet(self, span: UnmetSpan, now_s: float) -> list[Instruction]:
        """Take in a span in which a container wanted its request throughout and got less."""
        self.unmet[span.container] += 1
        return self._announcer.announce(_unmet(span), now_s)

    def take_overuse(self, overuse: ShareOveruse, process: ProcessKey, now_s: float) -> list[Instruction]:
        """Take in an overuse; `process` is `NO_PROCESS` if its owner word is not known."""
        self.overuse[overuse.container] += 1
        return self._announcer.announce(_violated(overuse, process), now_s)

    def forget(self, containers: Iterable[ContainerKey]) -> None:
        """Forget containers that were removed."""
        for container in containers:
            self.unmet.pop(container, None)
            self.overuse.pop(container, None)


def _unmet(span: UnmetSpan) -> announcements.Unmet:
    used_pct = round(span.used_pct, 1)
    text = (
        f"wanted this GPU throughout {round(span.span_s, 1):g} s, and had it for {used_pct:g} % of that time"
        f" instead of the {span.request_pct} % it requested"
    )
    return announcements.Unmet(
        **about(span.container), gpu=span.gpu, text=text, share_pct=span.request_pct, used_pct=used_pct
    )


def _violated(overuse: ShareOveruse, process: ProcessKey) -> announcements.ShareViolated:
    used_pct, claimed_pct = round(overuse.used_pct, 1), round(overuse.claimed_pct, 1)
    text = (
        f"by NVML the process used {used_pct:g} % of this GPU's time, while its page says {claimed_pct:g} %"
    )
    return announcements.ShareViolated(
        **about(overuse.container, process), gpu=overuse.gpu, text=text, used_pct=used_pct
    )
