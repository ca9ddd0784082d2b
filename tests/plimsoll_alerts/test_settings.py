"""Settings of the alerts that cannot work are refused, with the remedy."""

from pathlib import Path

import pytest

from plimsoll.part.errors import InputError
from plimsoll_alerts.core.alert import AlertKind
from plimsoll_alerts.settings import load

URL = "http://alertmanager:9093"


def given(**own: str) -> dict[str, str]:
    """An environment."""
    return {
        f"PLIMSOLL_ALERTS_{name.upper()}": value for name, value in ({"alertmanager_url": URL} | own).items()
    }


def test_what_is_given_is_used() -> None:
    """Several Alertmanagers with prefixes, some alerts, further labels, and the bus of all parts."""
    urls = f"{URL}/prefix/,https://second:9093"
    own = given(alertmanager_url=urls, kinds="gpu.health, node.silent", labels="cluster=west,team=gpu")
    read = load({**own, "PLIMSOLL_NATS_URL": "tls://nats:4222"})
    assert read.urls == (f"{URL}/prefix", "https://second:9093")
    assert read.book().kinds == {AlertKind.HEALTH, AlertKind.SILENT}
    assert read.labels == {"cluster": "west", "team": "gpu"}
    assert read.bus.nats_url == "tls://nats:4222"


def test_all_alerts_are_the_default() -> None:
    """No user has to name them."""
    assert load(given()).book().kinds == frozenset(AlertKind)


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ({"alertmanager_url": "alertmanager:9093"}, "ALERTMANAGER_URL: .* is no URL of such a server"),
        (
            {"alertmanager_url": "http://user:secret@host:9093"},
            "ALERTMANAGER_URL: .* has a user .*PASSWORD_FILE",
        ),
        ({"kinds": "gpu.fire"}, "KINDS: 'gpu.fire' is no alert; give some of gpu.health, "),
        ({"labels": "cluster"}, "LABELS: 'cluster' is no label; write name=value"),
        ({"labels": "node=a"}, "LABELS: 'node' is a label that alerts have"),
        ({"user": "a"}, "PASSWORD_FILE: '' is missing beside its other half"),
        ({"certificate": "/dev/null"}, "KEY: '' is missing beside its other half"),
        ({"token_file": "/none"}, "TOKEN_FILE: '/none' cannot be read; name a readable file"),
        (
            {"token_file": "/dev/null", "user": "a", "password_file": "/dev/null"},
            "TOKEN_FILE: '/dev/null' is a second identity",
        ),
        ({"label": "a=b"}, "LABEL: .* did you mean PLIMSOLL_ALERTS_LABELS"),
    ],
)
def test_what_cannot_work_is_refused(own: dict[str, str], said: str) -> None:
    """By variable, value and remedy."""
    with pytest.raises(InputError, match=said):
        load(given(**own))


def test_a_secret_in_place_of_its_file_is_not_shown() -> None:
    """A mistake that many make once."""
    with pytest.raises(InputError) as refused:
        load(given(token_file="eyJhbGciOi"))  # noqa: S106 - that is the test
    assert "eyJ" not in str(refused.value)


def test_a_bus_that_is_none_is_refused(tmp_path: Path) -> None:
    """By the variable of all parts."""
    with pytest.raises(InputError, match="PLIMSOLL_NATS_URL"):
        load({**given(), "PLIMSOLL_NATS_URL": str(tmp_path)})
