"""The chart's schema takes a setting's value exactly where the part itself would start with it."""

import json
from typing import Any

import jsonschema
import pytest

import placer.pool.settings
import placer.settings
import plimsoll_alerts.settings
from plimsoll.part import settings as part_settings
from plimsoll.part.errors import InputError
from tools.chart import CHART
from tools.chart_schema import CHECKED
from tools.settings import PARTS

SCHEMA = json.loads((CHART / "values.schema.json").read_text())
NUMBERS = (-1, 0, 0.01, 0.5, 1, 3, 20, 60, 101, 3601, 86_401, 10**6, 10**10, 10**13)
QUOTED = (
    *map(str, NUMBERS),
    "007",
    ".5",
    "1.",
    "0.0",
    "0.04",
    "0.051",
    "59.9",
    "60.0",
    "60.1",
    "99",
    "86400.0",
    "86400.5",
)
TEXTS = (
    "",
    "x",
    "off",
    "both",
    "fifo",
    "reservation(2)",
    "reservation(10000000)",
    "hybrid(1)",
    "hybrid(1, 3)",
)
WORDS = (
    "gpu.health",
    "gpu.health, bus.away",
    "gpu.fire",
    "gpu.health,",
    "binpack",
    "spread",
    "literal",
    "evict",
)
NEEDED = {"NODE": "n1", "IMAGE": "plimsoll:1", "NAMESPACE": "pool", "ALERTMANAGER_URL": "http://a:9093"}
LOADS = {
    "placer": placer.settings.load,
    "pool": placer.pool.settings.load,
    "alerts": plimsoll_alerts.settings.load,
}


def starts(part: str, name: str, value: object) -> bool:
    """Whether the part takes this value, as the chart would write it."""
    prefix, kind = PARTS[part]
    text = f"{value:.0f}" if isinstance(value, int) and not isinstance(value, bool) else str(value).lower()
    text = value if isinstance(value, str) else text
    given = {prefix + key: one for key, one in NEEDED.items() if hasattr(kind, key.lower())}
    given |= {prefix + name.upper(): text}
    try:
        if (part, name) in CHECKED:
            LOADS[part](given)
        else:
            part_settings.load(kind, given, prefix)
    except InputError:
        return False
    return True


def fits(form: dict[str, Any], value: object) -> bool:
    """Whether Helm takes this value."""
    valid: bool = jsonschema.Draft7Validator(form).is_valid(value)
    return valid


@pytest.mark.parametrize("part", PARTS)
def test_a_value_that_ends_the_part_is_refused_by_helm(part: str) -> None:
    """For every setting, the schema takes the numbers, texts and words that the part takes, and no others."""
    for name, form in SCHEMA["properties"][part]["properties"]["settings"]["properties"].items():
        taken = [value for value in (*NUMBERS, *QUOTED, *TEXTS, *WORDS, True) if fits(form, value)]
        assert taken or form.get("enum"), name
        for value in (*taken, *form.get("enum", ())):
            assert starts(part, name, value), (name, value)


@pytest.mark.parametrize("part", PARTS)
def test_a_number_that_the_part_takes_is_taken(part: str) -> None:
    """The ranges are no narrower than the part's, with quotes or without."""
    for name, form in SCHEMA["properties"][part]["properties"]["settings"]["properties"].items():
        if {"number", "integer"}.intersection(form.get("type", ())):
            dotted = "number" in form["type"]
            for value in (*NUMBERS, *(one for one in QUOTED if dotted or "." not in one)):
                assert fits(form, value) == starts(part, name, value), (name, value)
