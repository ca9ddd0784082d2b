"""Settings from the environment."""

from dataclasses import dataclass
from typing import Annotated

import msgspec
import pytest

from plimsoll.part.errors import InputError
from plimsoll.part.settings import check_url, load, shown_url


@dataclass(frozen=True, slots=True)
class Example:
    """A part's settings."""

    node: str
    sample_ms: Annotated[int, msgspec.Meta(ge=1)] = 100
    ratio: float = 1.0


def test_values_come_from_the_environment_and_defaults() -> None:
    """A field is read from the variable of its upper-case name behind the prefix."""
    assert load(Example, {"PLIMSOLL_NODE": "n", "PLIMSOLL_RATIO": "1.5"}) == Example("n", 100, 1.5)


@pytest.mark.parametrize("value", ["0", "soon", "1.5", "\udcff"])
def test_an_unreadable_value_names_its_variable(value: str) -> None:
    """The message names the variable and shows its value."""
    with pytest.raises(InputError, match="PLIMSOLL_SAMPLE_MS") as refused:
        load(Example, {"PLIMSOLL_NODE": "n", "PLIMSOLL_SAMPLE_MS": value})
    assert repr(value) in str(refused.value)


@pytest.mark.parametrize("value", ["inf", "-Infinity", "nan"])
def test_a_number_that_is_not_finite_is_refused(value: str) -> None:
    """No pause and no ratio is infinite: a part would start, and fail or stand still later."""
    with pytest.raises(InputError, match=f"PLIMSOLL_RATIO: '{value}' is refused"):
        load(Example, {"PLIMSOLL_NODE": "n", "PLIMSOLL_RATIO": value})


def test_a_missing_value_names_its_variable() -> None:
    """A field without default must be set."""
    with pytest.raises(InputError, match="PLIMSOLL_NODE"):
        load(Example, {})


@pytest.mark.parametrize(
    "url", ["nats://h:4222", "tls://user:secret@h", "nats://[::1]:4222", "unix:///run/redis.sock"]
)
def test_urls_of_servers_are_taken(url: str) -> None:
    """A URL needs an expected scheme and a host, or a path on this machine."""
    check_url("V", url, ("nats", "tls", "unix"))


@pytest.mark.parametrize(
    "url", ["", "h:4222", "http://h", "nats://", "nats://h:nope", "nats://h:0", "unix://", "TLS://h"]
)
def test_what_is_no_url_of_a_server_is_refused(url: str) -> None:
    """The message names variable, value and the expected form."""
    with pytest.raises(
        InputError, match=r"^V: .* is no URL of such a server; begin it with nats://host:port"
    ):
        check_url("V", url, ("nats", "tls", "unix"))


def test_passwords_are_not_shown() -> None:
    """Neither the log nor a refusal shows a password of a URL."""
    assert shown_url("nats://u:secret@h:1,tls://token@k:2") == "nats://…@h:1,tls://…@k:2"
    assert shown_url("nats://h:1") == "nats://h:1"
    with pytest.raises(InputError) as refused:
        check_url("V", "http://u:secret@h", ("nats",))
    assert "secret" not in str(refused.value)
