"""Makes the page of all settings from the parts' own records, so that it cannot drift.

python -m tools.settings
"""

import dataclasses
import sys
from collections.abc import Mapping
from typing import Final

import hook.broker.settings
import monitor.settings
import placer.pool.settings
import placer.settings
import placer.webhook.settings
import plimsoll_alerts.settings
from plimsoll.part.settings import PREFIX, default_of, texts_of

PARTS: Final[Mapping[str, tuple[str, type[object]]]] = {
    "Placer": (PREFIX, placer.settings.Settings),
    "Monitor": (PREFIX, monitor.settings.Settings),
    "Broker": (hook.broker.settings.PREFIX, hook.broker.settings.Settings),
    "Webhook": (placer.webhook.settings.PREFIX, placer.webhook.settings.Settings),
    "Pool": (placer.pool.settings.PREFIX, placer.pool.settings.Settings),
    "Alerts": (plimsoll_alerts.settings.PREFIX, plimsoll_alerts.settings.Settings),
}
"""The sections of the page: the beginning of the variables' names, and the record."""

HEAD: Final = """\
# Settings

Each part reads its settings from environment variables when it starts, and refuses all that cannot work at once, with
variable, value and remedy ([how](errors.md#settings)). In the chart they stand under `<part>.settings`, without the
prefix and in lower case. `python -m <part> --help` prints those of one part. This page is generated from the code.
"""


def settings_page() -> str:
    """The whole page, in Markdown."""
    lines = [HEAD]
    for part, (prefix, kind) in PARTS.items():
        assert dataclasses.is_dataclass(kind)
        texts = texts_of(kind)
        lines += [f"## {part}", "", "| setting | default | meaning |", "| --- | --- | --- |"]
        for field in dataclasses.fields(kind):
            default = default_of(field).removeprefix("default: ")
            text = texts.get(field.name, "").replace("|", "\\|")
            lines.append(f"| `{prefix}{field.name.upper()}` | {default} | {text} |")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(settings_page())
