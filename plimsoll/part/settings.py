"""Settings from the environment into one frozen dataclass per part, read once, in its `app.py`.

With the prefix `PLIMSOLL_`, a field `nats_url` is read from `PLIMSOLL_NATS_URL`. Defaults and units stand on the
dataclass. An unreadable value is refused with its variable's name.
"""

import dataclasses
import enum
import inspect
import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Final, TypeVar
from urllib.parse import urlsplit

import msgspec

from plimsoll.part.errors import InputError

PREFIX: Final = "PLIMSOLL_"

_UNITS: Final = {"s": "seconds", "ms": "milliseconds", "bytes": "bytes", "pct": "percent"}
"""By the last word of a field's name."""

_CREDENTIALS: Final = re.compile(r"//[^/,]*@")

T = TypeVar("T")


def load(kind: type[T], environment: Mapping[str, str], prefix: str = PREFIX) -> T:
    """The settings of one part.

    Args:
        kind: a frozen dataclass whose fields may carry `Annotated[…, msgspec.Meta(ge=…, le=…)]` bounds.
        environment: usually `os.environ`.
        prefix: the beginning of its variables' names.

    Raises:
        InputError: a value is unreadable, out of bounds, or a field without default is missing.
    """
    assert dataclasses.is_dataclass(kind)
    given: dict[str, str] = {}
    for field in dataclasses.fields(kind):
        variable = prefix + field.name.upper()
        if variable in environment:
            given[field.name] = environment[variable]
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise InputError(variable, None, "is not set", f"set it: {field.name} has no default")
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        name = next((name for name in given if f"`$.{name}`" in str(error)), "")
        remedy = "mend the environment variable"
        raise InputError(prefix + name.upper(), given.get(name), f"is refused ({error})", remedy) from error


def usage(about: str | None, kind: type[object], prefix: str = PREFIX) -> str:
    """The text for `--help`: each variable with its default, its unit, and the class's own text.

    Args:
        about: one sentence on the part.
        kind: a dataclass as for `load`, with an `Attributes:` section in its docstring.
        prefix: the beginning of its variables' names.
    """
    assert dataclasses.is_dataclass(kind)
    _, _, section = (inspect.getdoc(kind) or "").partition("Attributes:\n")
    entries = re.findall(r"^    (\w.*?): (.*(?:\n     .*)*)", section, re.MULTILINE)
    texts = {name: text for names, text in entries for name in names.split(", ")}
    lines = [about or "", "", "Settings are environment variables:", ""]
    for field in dataclasses.fields(kind):
        lines.append(f"  {prefix}{field.name.upper()} ({_default(field)})")
        text = " ".join(texts.get(field.name, "").split())
        lines += textwrap.wrap(text, 100, initial_indent=" " * 6, subsequent_indent=" " * 6)
    return "\n".join(lines)


def _default(field: dataclasses.Field[object]) -> str:
    value = field.default.value if isinstance(field.default, enum.Enum) else field.default
    if value is dataclasses.MISSING:
        return "no default"
    if value is None or value == "":
        return "default: none"
    shown = str(value).lower() if isinstance(value, bool) else str(value)
    unit = _UNITS.get(field.name.rpartition("_")[2], "")
    return f"default: {shown} {unit}".rstrip()


def shown_url(urls: str) -> str:
    """URLs as the log may show them, without user and password."""
    return _CREDENTIALS.sub("//…@", urls)


def check_url(variable: str, url: str, schemes: Sequence[str]) -> None:
    """Refuse a text that is no URL of a server.

    Args:
        variable: the environment variable that holds it.
        url: one URL.
        schemes: the allowed schemes; `unix` has a path where the others have a host.

    Raises:
        InputError: naming the variable.
    """
    try:
        parts = urlsplit(url)
        place = parts.path if parts.scheme == "unix" else parts.hostname
        works = parts.scheme in schemes and bool(place) and parts.port != 0
    except ValueError:
        works = False
    if not works:
        raise InputError(
            variable, shown_url(url), "is no URL of such a server", f"begin it with {schemes[0]}://host:port"
        )
