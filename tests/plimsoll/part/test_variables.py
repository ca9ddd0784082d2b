"""Misspelt `PLIMSOLL_*` variables are refused, all of them at once, and no other variable is."""

import dataclasses
import re
import subprocess
from pathlib import Path

import pytest

import hook.broker.settings
import monitor.settings
import placer.pool.settings
import placer.settings
import placer.webhook.settings
from plimsoll.part.errors import InputError, errors_in
from plimsoll.part.settings import PREFIX
from plimsoll.part.variables import PART_PREFIXES, SHARED, unknown_variables

REPOSITORY = Path(__file__).parents[3]


def test_the_names_are_those_of_the_settings() -> None:
    """Each setting of the monitor and the placer is a shared name: add new ones to `plimsoll/part/variables.py`."""
    for kind in (monitor.settings.Settings, placer.settings.Settings):
        names = {PREFIX + field.name.upper() for field in dataclasses.fields(kind)}
        assert names - SHARED == set()
    for prefix in (
        hook.broker.settings.PREFIX,
        placer.pool.settings.PREFIX,
        placer.webhook.settings.PREFIX,
    ):
        assert prefix in PART_PREFIXES


def test_the_names_that_c_reads_are_known() -> None:
    """A program under the library may start parts, with the library's variables in its environment."""
    files = subprocess.run(
        ("git", "grep", "-hE", r"(getenv\(|VARIABLE) ?\"PLIMSOLL_", "--", "hook/lib", "emulator"),
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    named = set(re.findall(r'"(PLIMSOLL_[A-Z_]+)"', files))
    assert named
    assert named - SHARED == set()


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("PLIMSOLL_NAST_URL", "did you mean PLIMSOLL_NATS_URL? If not, remove it"),
        ("PLIMSOLL_XYZZY", "remove it; `--help` names all settings"),
        ("PLIMSOLL_REDIS_PASSWORD", "did you mean PLIMSOLL_REDIS_URL? If not, remove it"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_spelling(name: str, remedy: str) -> None:
    """Its value is not shown: it may be a password."""
    [error] = unknown_variables({name: "hunter2"})
    assert str(error) == f"{name}: (value not shown) is no setting of Plimsoll; {remedy}"


def test_a_part_knows_its_own_names_behind_its_prefix() -> None:
    """The broker refuses a misspelt setting of its own; the placer leaves that to the broker."""
    typo = {"PLIMSOLL_BROKER_WIAT_POLICY": "fifo"}
    with pytest.raises(InputError, match="did you mean PLIMSOLL_BROKER_WAIT_POLICY"):
        hook.broker.settings.load(typo)
    placer.settings.load(typo)
    with pytest.raises(InputError, match=r"did you mean PLIMSOLL_NODE\?"):
        monitor.settings.load({"PLIMSOLL_NODE_NAME": "n", "PLIMSOLL_NODE": "n"})
    assert hook.broker.settings.load({"PLIMSOLL_NATS_URL": "nats://h"}).root


def test_variables_of_services_are_no_settings() -> None:
    """The kubelet sets such variables for the Services of a namespace, and one has the name of a setting."""
    links = {
        "PLIMSOLL_PLACER_SERVICE_HOST": "10.0.0.1",
        "PLIMSOLL_PLACER_SERVICE_PORT_HTTP": "80",
        "PLIMSOLL_PLACER_PORT": "tcp://10.0.0.1:80",
        "PLIMSOLL_PLACER_PORT_80_TCP_ADDR": "10.0.0.1",
        "PLIMSOLL_WEBHOOK_PORT": "tcp://10.0.0.1:443",
        "PLIMSOLL_WEBHOOK_PORT_443_TCP": "tcp://10.0.0.1:443",
    }
    assert placer.webhook.settings.load(links).port == 8443
    placer.settings.load(links)


def test_all_bad_values_are_told_at_once() -> None:
    """Each with name, value and remedy: unknown names, unreadable values, bounds, URLs and missing files."""
    given = {
        "PLIMSOLL_NAST_URL": "nats://u:pw@x",
        "PLIMSOLL_RECONCILE_S": "soon",
        "PLIMSOLL_NATS_URL": "nats://u:p/w@h:4222",
        "PLIMSOLL_KUBECONFIG": "/no/such/file",
    }
    with pytest.raises(ExceptionGroup) as refused:
        monitor.settings.load(given)
    told = "\n".join(map(str, errors_in(refused.value, InputError)))
    for text in (
        "PLIMSOLL_NAST_URL: (value not shown)",
        "PLIMSOLL_NODE: None is not set",
        "PLIMSOLL_RECONCILE_S: 'soon' is refused",
        "PLIMSOLL_NATS_URL: 'nats://…@h:4222' is no URL",
        "PLIMSOLL_KUBECONFIG: '/no/such/file' does not exist; name a readable kubeconfig",
    ):
        assert text in told
    assert "pw" not in told
    assert "p/w" not in told
