"""The settings of `plimsoll alerts`: read once, from `PLIMSOLL_ALERTS_*` in the environment, in `app.py`.

The bus has the variables of all parts: `PLIMSOLL_NATS_URL` and the files of `plimsoll.bus.access`.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from plimsoll.bus.settings import BusSettings, load_bus
from plimsoll.part import settings
from plimsoll.part.errors import InputError
from plimsoll.part.settings import ProcessSettings
from plimsoll_alerts.core.alert import AlertKind
from plimsoll_alerts.core.book import AlertBook

PREFIX: Final = "PLIMSOLL_ALERTS_"

RUNBOOKS: Final = "docs/runbooks"
"""The folder of the alerts' pages in the project's tree, which serves nobody's browser."""

_LABEL: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_OURS: Final = frozenset({"alertname", "severity", "node", "gpu", "model", "pod", "container"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(ProcessSettings):
    """Each field is read from `PLIMSOLL_ALERTS_` and its name in capitals.

    Attributes:
        alertmanager_url: Alertmanager's URL, `http://host:9093` or `https://…`, with a path where it has a prefix;
            several with commas: each gets every alert, as the members of a cluster of Alertmanagers want it.
        kinds: the alerts that are wanted, with commas: `gpu.health`, `gpu.pressure`, `limit.violated`,
            `limit.unenforced`, `node.foreign`, `node.silent`, `bus.away`. Empty: all.
        labels: further labels of every alert, as `cluster=west,team=gpu`.
        runbook_url: the address at which the folder docs/runbooks, with the alerts' pages, is served. Each alert's
            annotation `runbook_url` is that of its page; empty: the page's path in the project's tree.
        ca: PEM file of the authorities of Alertmanager's certificate; empty: those of the system.
        certificate, key: PEM files of this client's certificate and its key; empty: none is shown.
        user: the user for basic authentication; empty: none.
        password_file: a file with that user's password, read at each post.
        token_file: a file with a bearer token, read at each post; in place of `user`.
    """

    alertmanager_url: str
    kinds: str = ""
    labels: str = ""
    runbook_url: str = ""
    ca: str = ""
    certificate: str = ""
    key: str = ""
    user: str = ""
    password_file: str = ""
    token_file: str = ""


@dataclass(frozen=True, slots=True)
class Given:
    """All settings of the service.

    Attributes:
        settings: its own settings.
        bus: those of all parts on the bus.
    """

    settings: Settings
    bus: BusSettings

    @property
    def log_level(self) -> str:
        """See `Settings`."""
        return self.settings.log_level

    @property
    def urls(self) -> tuple[str, ...]:
        """The Alertmanagers."""
        return tuple(url.rstrip("/") for url in self.settings.alertmanager_url.split(","))

    @property
    def labels(self) -> dict[str, str]:
        """The labels of every alert."""
        return dict(_labels(self.settings.labels))

    def book(self) -> AlertBook:
        """An empty book for the wanted alerts."""
        return AlertBook(_kinds(self.settings.kinds))


def load(environment: Mapping[str, str]) -> Given:
    """Read and check the settings.

    Raises:
        InputError: a setting is unreadable, out of bounds, unknown, or cannot work; several in a group.
    """
    own = settings.load(
        Settings,
        environment,
        PREFIX,
        checks={
            "alertmanager_url": _check_urls,
            "kinds": lambda variable, text: _kinds(text, variable),
            "labels": lambda variable, text: _labels(text, variable),
        },
        rules=[_check_files, _check_identity],
    )
    return Given(own, load_bus(environment))


def _check_urls(variable: str, urls: str | None) -> None:
    for url in (urls or "").split(","):
        settings.check_url(variable, url, ("http", "https"))
        parts = urlsplit(url)
        if parts.username is not None or parts.query or parts.fragment:
            remedy = f"give {PREFIX}USER and {PREFIX}PASSWORD_FILE, and a URL without ? and #"
            raise InputError(variable, settings.shown_url(url), "has a user or more than a path", remedy)


def _kinds(text: str, variable: str = f"{PREFIX}KINDS") -> frozenset[AlertKind]:
    known = {kind.value: kind for kind in AlertKind}
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in known:
            raise InputError(variable, name, "is no alert", f"give some of {', '.join(known)}")
    return frozenset(known[name] for name in names) or frozenset(AlertKind)


def _labels(text: str, variable: str = f"{PREFIX}LABELS") -> list[tuple[str, str]]:
    pairs = []
    for pair in filter(None, (each.strip() for each in text.split(","))):
        name, equals, value = pair.partition("=")
        if not (_LABEL.fullmatch(name) and equals and value):
            raise InputError(variable, pair, "is no label", "write name=value, several with commas")
        if name in _OURS:
            raise InputError(variable, name, "is a label that alerts have", "choose another name")
        pairs.append((name, value))
    return pairs


def _check_files(given: Settings) -> None:
    for name in ("ca", "certificate", "key", "password_file", "token_file"):
        path = getattr(given, name)
        if path and not os.access(path, os.R_OK):
            shown, remedy = settings.shown_path(path), "name a readable file"
            raise InputError(f"{PREFIX}{name.upper()}", shown, "cannot be read", remedy)


def _check_identity(given: Settings) -> None:
    if bool(given.certificate) != bool(given.key):
        name = "KEY" if given.certificate else "CERTIFICATE"
        raise InputError(PREFIX + name, "", "is missing beside its other half", "give both, or neither")
    if bool(given.user) != bool(given.password_file):
        name = "PASSWORD_FILE" if given.user else "USER"
        raise InputError(PREFIX + name, "", "is missing beside its other half", "give both, or neither")
    if given.user and given.token_file:
        remedy = f"give it, or {PREFIX}USER and {PREFIX}PASSWORD_FILE"
        raise InputError(
            f"{PREFIX}TOKEN_FILE", settings.shown_path(given.token_file), "is a second identity", remedy
        )
