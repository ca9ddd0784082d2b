"""An alert: a state that holds now. Its labels are its identity, so a fact that is reported twice is one alert.

What always holds: a label never changes while the state lasts. So no amount is a label, and texts for people are
annotations.
"""

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final


class AlertKind(enum.Enum):
    """The states that can fire, named as the events that show them."""

    HEALTH = "gpu.health"
    PRESSURE = "gpu.pressure"
    VIOLATED = "limit.violated"
    UNENFORCED = "limit.unenforced"
    FOREIGN = "node.foreign"
    SILENT = "node.silent"
    BUS = "bus.away"


Labels = tuple[tuple[str, str], ...]
"""Names and values, sorted by name."""

CRITICAL: Final = "critical"
"""Somebody should act now: capacity or correct data is lost."""

WARNING: Final = "warning"
"""Somebody should look at it today."""


@dataclass(frozen=True, slots=True)
class Alert:
    """A state that holds.

    Attributes:
        kind: see `AlertKind`.
        labels: `alertname`, `severity`, and the names of what it is about.
        since: when it began, in UTC; None where nobody knows.
        summary: one sentence for people.
        description: what it means, and what to do.
    """

    kind: AlertKind
    labels: Labels
    since: datetime | None
    summary: str
    description: str

    @property
    def runbook(self) -> str:
        """The name of the page about it; rules of Prometheus with the same name have the same page."""
        return f"{dict(self.labels)['alertname']}.md"


def alert(
    kind: AlertKind, name: str, severity: str, about: Mapping[str, str], since: str, texts: tuple[str, str]
) -> Alert:
    """An alert.

    Args:
        kind: see `AlertKind`.
        name: the value of `alertname`.
        severity: `CRITICAL` or `WARNING`.
        about: further labels; Alertmanager has no empty ones, so they are left out.
        since: RFC 3339, as an event has it; any other text counts as not known.
        texts: summary and description.
    """
    labels = {**about, "alertname": name, "severity": severity}
    shown = tuple(sorted((name, value) for name, value in labels.items() if value))
    return Alert(kind, shown, _moment(since), *texts)


def by_labels(alerts: Iterable[Alert]) -> dict[Labels, Alert]:
    """The alerts by their identity; of several with the same labels the oldest is kept."""
    found: dict[Labels, Alert] = {}
    for one in alerts:
        known = found.setdefault(one.labels, one)
        if known is not one and one.since is not None and (known.since is None or one.since < known.since):
            found[one.labels] = replace(known, since=one.since)
    return found


def _moment(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment.astimezone(UTC) if moment.tzinfo is not None else None
