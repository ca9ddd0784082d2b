"""The settings of the parts that speak on the bus."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from plimsoll.bus.access import BusAccess
from plimsoll.bus.stream import LONGEST_AGE_S, MAX_AGE_S, MAX_BYTES, NATS_SCHEMES, Replicas, Stream
from plimsoll.part import settings
from plimsoll.part.settings import check_urls


@dataclass(frozen=True, kw_only=True)
class BusSettings:
    """Each part on the bus reads them from `PLIMSOLL_` and their names in capitals.

    Attributes:
        nats_url: the bus; several URLs with commas.
        nats_ca: PEM file of the authorities of NATS's certificate; empty: those of the system.
        nats_certificate, nats_key: PEM files of this client's certificate and its key; empty: none is shown.
        nats_credentials: file with a user's JWT and nkey (`.creds`); empty: none.
        nats_nkey: file with the seed of a user's nkey; empty: none.
    """

    nats_url: str = "nats://127.0.0.1:4222"
    nats_ca: str = ""
    nats_certificate: str = ""
    nats_key: str = ""
    nats_credentials: str = ""
    nats_nkey: str = ""

    @property
    def nats_access(self) -> BusAccess:
        """The files by which this part and NATS know each other."""
        return BusAccess(
            self.nats_ca, self.nats_certificate, self.nats_key, self.nats_credentials, self.nats_nkey
        )


@dataclass(frozen=True, kw_only=True)
class StreamSettings(BusSettings):
    """Placer and monitor make the stream where it is missing. Give both the same.

    Attributes:
        stream_max_bytes: size of the JetStream stream.
        stream_max_age_s: age of its oldest event, in seconds: a week, far longer than any heartbeat. An event that a
            monitor keeps on its disk for longer is dropped, logged and counted.
        stream_replicas: NATS servers that keep the stream: 1, 3 or 5, at most as many as the cluster has.
    """

    stream_max_bytes: Annotated[int, Meta(ge=1_000_000)] = MAX_BYTES
    stream_max_age_s: Annotated[float, Meta(ge=60, le=LONGEST_AGE_S)] = MAX_AGE_S
    stream_replicas: Replicas = 1

    @property
    def stream(self) -> Stream:
        """The stream to make."""
        return Stream(self.stream_max_bytes, self.stream_max_age_s, self.stream_replicas)


def check_bus(variable: str, urls: str) -> None:
    """Refuse a text that is no list of URLs of NATS."""
    check_urls(variable, urls, NATS_SCHEMES)


def load_bus(environment: Mapping[str, str]) -> BusSettings:
    """The settings of a part that only reads from the bus.

    Raises:
        InputError: a setting is unreadable, unknown, or cannot work; several in a group.
    """
    rules = [lambda given: given.nats_access.check()]
    return settings.load(BusSettings, environment, checks={"nats_url": check_bus}, rules=rules)
