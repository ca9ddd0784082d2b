"""The forms of settings in the chart's `values.schema.json`, from the declarations of the settings themselves.

The schema is written by hand but for these forms: ranges, patterns and words of everything that the chart passes to a
part by an environment variable. So Helm refuses, by the value's name, what would end the part at its start.
"""

import enum
import json
import re
import types
from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from msgspec import Meta

from placer.core.policies import OURS_LATER, POLICIES
from placer.pool.core.release_policy import FORM as RELEASE_POLICY
from plimsoll_alerts.core.alert import AlertKind
from tools.quoted import decimals, integers
from tools.settings import PARTS

Form = dict[str, Any]

_KIND: Final = f" *({'|'.join(kind.value.replace('.', '[.]') for kind in AlertKind)}) *"

_PORT: Final = "([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
_HOST: Final = r"([A-Za-z0-9._$()-]+|\[[0-9a-fA-F:.%]+\])"
"""A name, an address, or a variable that Kubernetes fills in."""


_URL: Final = f"https?://{_HOST}(:{_PORT})?(/[^,?#]*)?"

CHECKED: Final[Mapping[tuple[str, str], Form]] = {
    # A policy that a package brings is named in `placer.env`: only the image knows it.
    ("placer", "policy"): {"enum": sorted({*POLICIES, *OURS_LATER})},
    ("pool", "policy"): {"type": "string", "pattern": f"^({RELEASE_POLICY.pattern})$"},
    ("alerts", "alertmanager_url"): {"type": "string", "pattern": f"^({_URL}(,{_URL})*)?$"},
    ("alerts", "kinds"): {"type": "string", "pattern": f"^({_KIND}(,{_KIND})*)?$"},
}
"""Settings whose text a check of their part reads, where a pattern can say the same."""

_VALUES: Final[Mapping[tuple[str, ...], tuple[str, str]]] = {
    ("stream", "replicas"): ("placer", "stream_replicas"),
    ("stream", "maxBytes"): ("placer", "stream_max_bytes"),
    ("stream", "maxAgeS"): ("placer", "stream_max_age_s"),
    ("overcommitRatio",): ("monitor", "overcommit_ratio"),
    ("gpuAccess",): ("webhook", "gpu_access"),
    ("webhook", "dialects", "gpushare"): ("webhook", "gpushare"),
    ("placer", "auth"): ("placer", "http_auth"),
    ("pool", "policy"): ("pool", "policy"),
    ("alerts", "alertmanagerUrl"): ("alerts", "alertmanager_url"),
}
"""The chart's own values that become a setting as they are. The URLs of servers are not among them: they may hold a
password, and Helm shows a value that its schema refuses."""

_BOUNDS: Final = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}
_SIZES: Final = {"min_length": "minLength", "max_length": "maxLength", "pattern": "pattern"}
_WORDS: Final = re.compile(r"\^\(([a-z-]+(?:\|[a-z-]+)*)\)\$")
"""A pattern of words alone: Helm then names the words."""
_TYPES: Final[Mapping[type, Form]] = {
    str: {"type": "string"},
    bool: {"enum": [True, False, "true", "false"]},
    int: {"type": ["integer", "string"], "pattern": "^[0-9]+$"},
    float: {"type": ["number", "string"], "pattern": "^[0-9]+([.][0-9]+)?$"},
}
"""Values files often quote what becomes an environment variable. A range has a pattern beside it, see `_quoted`."""

WIDTH: Final = 120


def with_forms(schema: Form) -> Form:
    """The schema with the forms of all settings that it names."""
    done: Form = json.loads(json.dumps(schema))
    for part in PARTS:
        named = done["properties"][part]["properties"]["settings"]["properties"]
        for name in named:
            named[name] = form_of(part, name)
    for path, (part, name) in _VALUES.items():
        parent = done["properties"]
        for step in path[:-1]:
            parent = parent[step]["properties"]
        form, old = form_of(part, name), parent[path[-1]]
        if "null" in old.get("type", ()):
            form |= (
                {"enum": [*form["enum"], None]}
                if "enum" in form
                else {"type": [*_list(form["type"]), "null"]}
            )
        parent[path[-1]] = form
    done["$defs"]["enforcement"] = form_of("broker", "enforcement")
    return done


def _list(types: str | list[str]) -> list[str]:
    return [types] if isinstance(types, str) else types


def form_of(part: str, name: str) -> Form:
    """The form of a setting."""
    if (part, name) in CHECKED:
        return dict(CHECKED[part, name])
    return _form(get_type_hints(PARTS[part][1], include_extras=True)[name])


def _form(hint: Any) -> Form:  # noqa: ANN401 - a type with its notes
    if get_origin(hint) is Annotated:
        kind, *notes = get_args(hint)
        form = _form(kind)
        for note in notes:
            if isinstance(note, Meta):
                # Equal notes are one object: whether 3600 or 3600.0 would depend on the order of imports.
                form |= {
                    key: int(value) if isinstance(value, float) and value.is_integer() else value
                    for field, key in (_BOUNDS | _SIZES).items()
                    if (value := getattr(note, field)) is not None
                }
        form |= _quoted(form)
        words = _WORDS.fullmatch(form.get("pattern", ""))
        return {"enum": words[1].split("|")} if words else form
    if get_origin(hint) in (Union, types.UnionType):
        # Without a value, the part has its default: the text for None is nothing to give.
        return _form(get_args(hint)[0])
    if get_origin(hint) is Literal:
        return {"enum": list(get_args(hint))}
    if isinstance(hint, enum.EnumType):
        members: Mapping[str, enum.Enum] = hint.__members__
        return {"enum": [member.value for member in members.values()]}
    return dict(_TYPES[hint])


def _quoted(form: Form) -> Form:
    """The pattern that keeps a number in quotes in the range of the others; nothing for other forms."""
    low = form.get("minimum", form.get("exclusiveMinimum"))
    if low is None or "pattern" not in form:
        return {}
    if "integer" in form["type"]:
        pattern = integers(low, form.get("maximum"))
    else:
        above = "exclusiveMinimum" in form
        pattern = decimals(Decimal(str(low)), form.get("maximum"), above=above)
    return {"pattern": f"^({pattern})$"}


def written(value: object, indent: str = "", before: int = 0) -> str:
    """JSON in which whatever fits stands in one line."""
    line = json.dumps(value, ensure_ascii=False)
    if len(indent) + before + len(line) < WIDTH or not isinstance(value, dict | list) or not value:
        return line
    deeper = indent + "  "
    if isinstance(value, list):
        return f"[\n{_lines(value, deeper)}\n{indent}]" if _is_flat(value) else _items(value, indent)
    pairs = (f"{deeper}{json.dumps(key)}: {written(one, deeper, len(key) + 5)}" for key, one in value.items())
    return "{\n" + ",\n".join(pairs) + f"\n{indent}}}"


def _is_flat(value: list[Any]) -> bool:
    return not any(isinstance(one, dict | list) for one in value)


def _items(value: list[Any], indent: str) -> str:
    deeper = indent + "  "
    return "[\n" + ",\n".join(deeper + written(one, deeper) for one in value) + f"\n{indent}]"


def _lines(value: list[Any], indent: str) -> str:
    """The entries of a list of words, many in a line."""
    lines = [indent]
    for at, one in enumerate(value):
        text = json.dumps(one, ensure_ascii=False) + ("," if at + 1 < len(value) else "")
        if len(lines[-1]) + len(text) >= WIDTH:
            lines.append(indent)
        lines[-1] += text if lines[-1] == indent else f" {text}"
    return "\n".join(lines)
