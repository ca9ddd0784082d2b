"""A container that takes part in the sharing of compute time: its terms, its gate, its processes' pages.

What always holds: an owner that the node does not know for a while is looked for, and not too often, as a tenant may
write any number of those.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import structlog

from hook.broker.core.ids import ContainerKey, ProcessKey
from hook.broker.core.shares.events import Terms
from hook.broker.shares.gates import Gate
from hook.broker.shares.work_pages import WorkPages

UNKNOWN_S: Final = 1.0
"""A process greets as soon as it owns a slot: after so long its greeting is lost."""

SURVEY_PAUSE_S: Final = 10.0
"""Between two surveys of one container: each looks at every process of the machine."""

_log: Final = structlog.get_logger()


@dataclass(eq=False, slots=True)
class Sharer:
    """One container.

    Attributes:
        is_scanned: its slots are known, so a process that comes is new.
        unknown_s: since when an owner is there that the node does not know.
        surveyed_s: when it was last surveyed for those.
        unheld: its processes that are known to have run unheld.
    """

    key: ContainerKey
    terms: Terms
    gate: Gate
    pages: WorkPages
    is_scanned: bool = False
    unknown_s: dict[int, float] = field(default_factory=dict)
    surveyed_s: float = -SURVEY_PAUSE_S
    unheld: set[ProcessKey] = field(default_factory=set)

    def adopt(self, gate: Gate) -> None:
        """It was laid out again: take the gate over, if it is another."""
        if self.gate.identity == gate.identity:
            gate.close()
            return
        _log.warning(
            "gate_was_replaced",
            pod=self.key.pod,
            container=self.key.container,
            value=gate.identity,
            was=self.gate.identity,
            effect="its programs run unheld",
            remedy="restart them; leave the gate file to the broker",
        )
        gate.take_over(self.gate)
        self.gate = gate

    def needs_survey(self, known: Mapping[ProcessKey, int]) -> bool:
        """Whether it is time to look for owners that the node does not know."""
        now_s, unknown = time.monotonic(), {page.owner for page in self.pages.all}.difference(known.values())
        self.unknown_s = {owner: self.unknown_s.get(owner, now_s) for owner in unknown}
        is_due = now_s - min(self.unknown_s.values(), default=now_s) > UNKNOWN_S
        if not is_due or now_s - self.surveyed_s < SURVEY_PAUSE_S:
            return False
        self.surveyed_s = now_s
        return True

    def newly_unheld(self, known: Mapping[ProcessKey, int], started_ticks: int) -> list[ProcessKey]:
        """Known processes from before this broker's start (in clock ticks since boot) that nobody held until now."""
        if not self.gate.was_unheld:
            return []
        owners = {page.owner for page in self.pages.all}
        found = [key for key, owner in known.items() if owner in owners and key.start_ticks < started_ticks]
        new = [key for key in sorted(found) if key not in self.unheld]
        self.unheld.update(new)
        return new
