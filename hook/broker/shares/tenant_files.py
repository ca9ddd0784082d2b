"""A container that shares compute time: its terms, its gate, and its processes' pages.

What always holds: if a slot's owner stays unknown for a while, the container is surveyed. Surveys are rare, because a
tenant may write any number of unknown owners.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from hook.broker.core.ids import ContainerKey
from hook.broker.core.shares.events import ShareTerms
from hook.broker.shares.gate_files import GateFile
from hook.broker.shares.work_pages import WorkPages
from plimsoll.ids import ProcessKey
from plimsoll.part.log import get_logger

UNKNOWN_S: Final = 1.0
"""Seconds. A process sends its hello as soon as it owns a slot; after this time the hello is lost."""

SURVEY_PAUSE_S: Final = 10.0
"""Seconds between two surveys of a container: each reads every process of the machine."""

_log: Final = get_logger()


@dataclass(eq=False, slots=True)
class TenantFiles:
    """A container with its gate and pages.

    Attributes:
        is_scanned: its slots were read before, so a process that now appears is new.
        unknown_s: since when each unknown owner is in its slots.
        surveyed_s: when the container was last surveyed for unknown owners.
        unheld: its processes that were announced as having run without their share enforced.
    """

    key: ContainerKey
    terms: ShareTerms
    gate: GateFile
    pages: WorkPages
    is_scanned: bool = False
    unknown_s: dict[int, float] = field(default_factory=dict)
    surveyed_s: float = -SURVEY_PAUSE_S
    unheld: set[ProcessKey] = field(default_factory=set)

    def adopt(self, gate: GateFile) -> None:
        """Take the gate of a new layout; close it if the file is the same."""
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
        """Whether a survey for unknown owners is due; `known` holds the announced processes."""
        now_s, unknown = time.monotonic(), {page.owner for page in self.pages.all}.difference(known.values())
        self.unknown_s = {owner: self.unknown_s.get(owner, now_s) for owner in unknown}
        is_due = now_s - min(self.unknown_s.values(), default=now_s) > UNKNOWN_S
        if not is_due or now_s - self.surveyed_s < SURVEY_PAUSE_S:
            return False
        self.surveyed_s = now_s
        return True

    def newly_unheld(self, known: Mapping[ProcessKey, int], started_ticks: int) -> list[ProcessKey]:
        """Processes that started before `started_ticks` (clock ticks since boot) and ran without a gate until now."""
        if not self.gate.was_unheld:
            return []
        owners = {page.owner for page in self.pages.all}
        found = [key for key, owner in known.items() if owner in owners and key.start_ticks < started_ticks]
        new = [key for key in sorted(found) if key not in self.unheld]
        self.unheld.update(new)
        return new
