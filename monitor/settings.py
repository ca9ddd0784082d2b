"""The monitor's settings: read once, from `PLIMSOLL_*` in the environment, in `app.py`."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from plimsoll.broker.wire import SYSTEM_ROOT
from plimsoll.bus.settings import StreamSettings, check_bus
from plimsoll.events import SLOWEST_HEARTBEAT_S
from plimsoll.ids import NODE_PATTERN
from plimsoll.kube.kubeconfig import ClusterSettings, check_kubeconfig
from plimsoll.part import settings
from plimsoll.part.errors import InputError
from plimsoll.part.settings import ProcessSettings
from plimsoll.quantity import MIB

Positive = Annotated[float, Meta(gt=0)]
Folder = Annotated[str, Meta(min_length=1)]  # an empty path would be the current directory
NodeText = Annotated[str, Meta(pattern=NODE_PATTERN)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(ProcessSettings, StreamSettings, ClusterSettings):
    """Every setting, with its default.

    Attributes:
        node: this node's name in Kubernetes (RFC 1123); it has no default.
        nats_url_file: a file whose only line is used in the place of `nats_url`, so that each node may have a user
            and a password of its own; read at the start. Empty: none.
        broker_root: the broker's root directory, which holds `broker.sock`; it need not exist.
        state_dir: directory of the state that outlives a restart (epoch, outbox, living tasks); for one monitor.
        reconcile_s: between samples otherwise. They find what neither an announcement nor a glance shows. 1 s costs
            half a percent of a core with 64 tasks, and 5 s a fifth of that.
        idle_period_s: the period over which idle time is measured; Kang et al. use a minute.
        heartbeat_s: the longest time without an event from this node; each report names it. After three heartbeats
            without a report, the placer places nothing here.
        outbox_bytes: the bytes of events that may wait on disk for NATS. When the outbox is full, sampling pauses and
            the broker keeps its journal, so no announcement of the hook is lost. SQLite's file is a fifth larger.
        overcommit_ratio: bytes promised per usable byte.
        sharers_per_gpu: containers that may share one GPU; 30 as in Kang et al.
    """

    node: NodeText
    nats_url_file: str = ""
    broker_root: Folder = SYSTEM_ROOT
    state_dir: Folder = "/var/lib/plimsoll-monitor"
    reconcile_s: Positive = 5.0
    idle_period_s: Annotated[float, Meta(ge=0.05)] = 60.0
    heartbeat_s: Annotated[float, Meta(gt=0, le=SLOWEST_HEARTBEAT_S)] = 60.0
    outbox_bytes: Annotated[int, Meta(ge=10_000)] = 128 * MIB
    overcommit_ratio: Annotated[float, Meta(gt=0, le=10)] = 1.0
    sharers_per_gpu: Annotated[int, Meta(ge=1, le=1000)] = 30


def load(environment: Mapping[str, str]) -> Settings:
    """The settings.

    Raises:
        InputError: one is missing, unreadable, out of bounds, unknown, or contradicts another; several in a group.
    """
    given = settings.load(
        Settings,
        environment,
        checks={
            "nats_url": check_bus,
            "kubeconfig": check_kubeconfig,
        },
        rules=[lambda given: given.nats_access.check()],
    )
    return (
        dataclasses.replace(given, nats_url=_read_urls(given.nats_url_file)) if given.nats_url_file else given
    )


def _read_urls(path: str) -> str:
    """The URLs in a file.

    Raises:
        InputError: the file cannot be read, or has no URL of a NATS server.
    """
    variable = "PLIMSOLL_NATS_URL_FILE"
    try:
        urls = Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        remedy = "name a file with the URL of this node's user, such as nats://n1:password@host:4222"
        # A URL in the place of its file holds a password, which the text of an OSError repeats.
        cause = error.strerror if isinstance(error, OSError) else error
        raise InputError(variable, settings.shown_url(path), f"cannot be read ({cause})", remedy) from error
    check_bus(variable, urls)
    return urls
