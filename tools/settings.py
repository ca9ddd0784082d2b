"""Makes the page of all settings from the parts' own records, so that it cannot drift.

python -m tools.settings
"""

import dataclasses
import sys
from collections.abc import Mapping
from typing import Any, Final

import hook.broker.settings
import monitor.settings
import placer.pool.settings
import placer.settings
import placer.webhook.settings
import plimsoll_alerts.settings
from plimsoll.bus.settings import BusSettings, StreamSettings
from plimsoll.kube.kubeconfig import ClusterSettings
from plimsoll.part.settings import PREFIX, ProcessSettings, default_of, texts_of

PARTS: Final[Mapping[str, tuple[str, type[Any]]]] = {
    "placer": (PREFIX, placer.settings.Settings),
    "monitor": (PREFIX, monitor.settings.Settings),
    "broker": (hook.broker.settings.PREFIX, hook.broker.settings.Settings),
    "webhook": (placer.webhook.settings.PREFIX, placer.webhook.settings.Settings),
    "pool": (placer.pool.settings.PREFIX, placer.pool.settings.Settings),
    "alerts": (plimsoll_alerts.settings.PREFIX, plimsoll_alerts.settings.Settings),
}
"""The sections of the page: the beginning of the variables' names, and the record."""

SHARED: Final[Mapping[str, tuple[str, type[Any]]]] = {
    "Every part": ("…", ProcessSettings),
    "Parts with a cluster": ("…", ClusterSettings),
    "Parts on the bus": (PREFIX, BusSettings),
    "Placer and monitor": (PREFIX, StreamSettings),
}
"""The sections of what several parts have. Behind `…`, each has the beginning of its own."""

HEAD: Final = """\
# Settings

Each part reads its settings from environment variables when it starts, and refuses all that cannot work at once, with
variable, value and remedy ([how](errors.md#settings)). In the chart they stand under `<part>.settings`, without the
prefix and in lower case. `python -m <part> --help` prints those of one part. This page is generated from the code.
What stands in no table is a constant beside the code that uses it. `…` is the beginning of a part's own variables,
such as `PLIMSOLL_BROKER_`; that of placer and monitor is `PLIMSOLL_`.
"""


def settings_page() -> str:
    """The whole page, in Markdown."""
    lines = [HEAD]
    parts = {part.capitalize(): record for part, record in PARTS.items()}
    for section, (prefix, kind) in {**SHARED, **parts}.items():
        texts = texts_of(kind)
        lines += [f"## {section}", "", "| setting | default | meaning |", "| --- | --- | --- |"]
        for field in own_fields(kind):
            default = default_of(field).removeprefix("default: ")
            text = texts.get(field.name, "").replace("|", "\\|")
            lines.append(f"| `{prefix}{field.name.upper()}` | {default} | {text} |")
        lines.append("")
    return "\n".join(lines)


def own_fields(kind: type[Any]) -> list[dataclasses.Field[object]]:
    """The fields of a record that its bases do not have."""
    bases = (base for base in kind.__bases__ if dataclasses.is_dataclass(base))
    inherited = {field.name for base in bases for field in dataclasses.fields(base)}
    return [field for field in dataclasses.fields(kind) if field.name not in inherited]


def count() -> int:
    """The number of settings: a variable of two parts is one."""
    records = (*PARTS.values(), *SHARED.values())
    return len({f"{prefix}{field.name.upper()}" for prefix, kind in records for field in own_fields(kind)})


if __name__ == "__main__":
    sys.stdout.write(settings_page())
