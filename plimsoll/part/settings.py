"""Settings from the environment into one frozen dataclass per part, read once, in its `app.py`.

With the prefix `PLIMSOLL_`, a field `nats_url` is read from `PLIMSOLL_NATS_URL`. Defaults and units stand on the
dataclass. What always holds: all variables that cannot work are refused together, each with name, value and remedy.
A misspelt name is refused too.
"""

import dataclasses
import enum
import inspect
import math
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, Final, TypeVar, get_type_hints
from urllib.parse import urlsplit

import msgspec

from plimsoll.part import variables
from plimsoll.part.errors import InputError
from plimsoll.part.variables import Hidden, is_service_link, unknown_variables

PREFIX: Final = variables.PREFIX
"""The beginning of the variables of a part that has no prefix of its own."""

_UNITS: Final = {"s": "seconds", "ms": "milliseconds", "bytes": "bytes", "pct": "percent"}
"""By the last word of a field's name."""

_NEXT_URL: Final = re.compile(r",(?=[a-zA-Z][a-zA-Z0-9+.-]*://)")
_CREDENTIALS: Final = re.compile(r"^([a-zA-Z][a-zA-Z0-9+.-]*://)?.*@")
_OPTIONS: Final = re.compile(r"\?.*$")

T = TypeVar("T")

LogLevel = Annotated[str, msgspec.Meta(pattern="^(debug|info|warning|error)$")]
"""The lowest level that is logged."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProcessSettings:
    """The settings of every part.

    Attributes:
        http_address, http_port: the TCP address of metrics, and of health and reads where the part has them; none is
            served without a port. 0 takes a free port, which the log names.
        log_level: `debug`, `info`, `warning` or `error`.
    """

    http_address: str = "127.0.0.1"
    http_port: Annotated[int, msgspec.Meta(ge=0, le=65535)] | None = None
    log_level: LogLevel = "info"


def load(
    kind: type[T],
    environment: Mapping[str, str],
    prefix: str = PREFIX,
    checks: Mapping[str, Callable[[str, Any], object]] | None = None,
    rules: Sequence[Callable[[T], object]] = (),
) -> T:
    """The settings of one part.

    Args:
        kind: a frozen dataclass whose fields may carry `Annotated[…, msgspec.Meta(ge=…, le=…)]` bounds.
        environment: usually `os.environ`.
        prefix: the beginning of its variables' names.
        checks: by field, a check of its value that no bound expresses: called with the variable and the value, it
            raises `InputError`.
        rules: checks of several fields together, likewise. They are applied where each value is right by itself.

    Raises:
        InputError: a value is unreadable, out of bounds or breaks a check, a field without default is missing, or a
            variable has an unknown name. Several errors come in an `ExceptionGroup`.
    """
    assert dataclasses.is_dataclass(kind)
    fields = {prefix + field.name.upper(): field for field in dataclasses.fields(kind)}
    # The kubelet's PLIMSOLL_WEBHOOK_PORT=tcp://10.0.0.1:443, for a Service of that name, is no setting.
    environment = {name: text for name, text in environment.items() if not is_service_link(name, text)}
    problems = list(unknown_variables(environment, fields.keys(), prefix))
    hints, values = get_type_hints(kind, include_extras=True), dict[str, object]()
    for variable, field in fields.items():
        try:
            if variable in environment or not _has_default(field):
                values[field.name] = _value(variable, field, hints[field.name], environment)
            if checks and field.name in checks:
                checks[field.name](variable, values.get(field.name, field.default))
        except InputError as error:
            problems.append(error)
    raise_all(problems)
    settings = kind(**values)
    raise_all(problem for rule in rules if (problem := _broken(rule, settings)) is not None)
    return settings


def raise_all(problems: Iterable[InputError]) -> None:
    """Raise these errors: one as it is, several as a group; return where there are none."""
    found = list(problems)
    if len(found) == 1:
        raise found[0]
    if found:
        raise ExceptionGroup("settings that cannot work", found)


def _value(
    variable: str, field: dataclasses.Field[object], hint: object, environment: Mapping[str, str]
) -> object:
    if variable not in environment:
        raise InputError(variable, None, "is not set", f"set it: {field.name} has no default")
    text = environment[variable]
    try:
        text.encode()
        value: object = msgspec.convert(text, hint, strict=False)
        if isinstance(value, float) and not math.isfinite(value):
            raise msgspec.ValidationError("Expected a finite `float`")
        return value
    except (msgspec.ValidationError, UnicodeEncodeError) as error:  # the latter: bytes that are not UTF-8
        remedy = "give such a value"
        if _has_default(field):
            remedy += f", or leave it out ({default_of(field)})"
        raise InputError(variable, text, f"is refused ({error})", remedy) from error


def _has_default(field: dataclasses.Field[object]) -> bool:
    return field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING


def _broken(rule: Callable[[T], object], settings: T) -> InputError | None:
    try:
        rule(settings)
    except InputError as error:
        return error
    return None


def usage(about: str | None, kind: type[object], prefix: str = PREFIX) -> str:
    """The text for `--help`: each variable with its default, its unit, and the class's own text.

    Args:
        about: one sentence on the part.
        kind: a dataclass as for `load`, with an `Attributes:` section in its docstring.
        prefix: the beginning of its variables' names.
    """
    assert dataclasses.is_dataclass(kind)
    texts = texts_of(kind)
    lines = [about or "", "", "Settings are environment variables:", ""]
    for field in dataclasses.fields(kind):
        lines.append(f"  {prefix}{field.name.upper()} ({default_of(field)})")
        lines += textwrap.wrap(
            texts.get(field.name, ""), 100, initial_indent=" " * 6, subsequent_indent=" " * 6
        )
    return "\n".join(lines)


def texts_of(kind: type[object]) -> dict[str, str]:
    """The description of each field in the docstrings of the class and of its bases, on one line."""
    texts: dict[str, str] = {}
    for one in reversed(kind.__mro__):
        _, _, section = inspect.cleandoc(one.__doc__ or "").partition("Attributes:\n")
        entries = re.findall(r"^    (\w.*?): (.*(?:\n     .*)*)", section, re.MULTILINE)
        texts |= {name: " ".join(text.split()) for names, text in entries for name in names.split(", ")}
    return texts


def default_of(field: dataclasses.Field[object]) -> str:
    """The default of a field with its unit, as `--help` shows it."""
    value = field.default.value if isinstance(field.default, enum.Enum) else field.default
    if value is dataclasses.MISSING:
        return "no default"
    if value is None or value == "":
        return "default: none"
    shown = str(value).lower() if isinstance(value, bool) else str(value)
    unit = _UNITS.get(field.name.rpartition("_")[2], "")
    return f"default: {shown} {unit}".rstrip()


def shown_url(urls: str) -> str:
    """URLs as the log may show them, without user, password and options, also where they are damaged.

    A password may hold any character, so all that comes before the last `@` of a URL is left out.
    """
    shown = (_CREDENTIALS.sub(r"\1…@", url, count=1) for url in _NEXT_URL.split(urls))
    return ",".join(_OPTIONS.sub("?…", url) for url in shown)


def shown_path(path: str) -> object:
    """A path as an error may show it; a text that begins unlike a path may be a secret, and is hidden."""
    return path if path.startswith(("/", "./", "../", "~")) else Hidden()


def check_urls(variable: str, urls: str, schemes: Sequence[str]) -> None:
    """Refuse a text that is no list of URLs of servers, with commas; see `check_url`."""
    for url in urls.split(","):
        # A comma in a password would cut the URL, so what is shown is the whole text without its credentials.
        check_url(variable, url, schemes, shown=shown_url(urls))


def check_url(variable: str, url: str, schemes: Sequence[str], shown: str | None = None) -> None:
    """Refuse a text that is no URL of a server.

    Args:
        variable: the environment variable that holds it.
        url: one URL.
        schemes: the allowed schemes, which a URL has in lower case; `unix` has a path where the others have a host.
        shown: the value in the error; None for the URL without credentials.

    Raises:
        InputError: naming the variable.
    """
    try:
        parts = urlsplit(url)
        place = parts.path if parts.scheme == "unix" else parts.hostname
        # In capitals, clients take a scheme for a host, or a URL for a path, and TLS is not spoken.
        is_scheme = parts.scheme in schemes and url.startswith(parts.scheme)
        works = is_scheme and bool(place) and parts.port != 0
    except ValueError:
        works = False
    if not works:
        remedy = (
            f"begin it with {schemes[0]}://host:port, and write / @ : , ? # % in a password as %2F and so on"
        )
        value = shown_url(url) if shown is None else shown
        raise InputError(variable, value, "is no URL of such a server", remedy)
